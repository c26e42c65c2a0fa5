"""Random calls of the set cross entropy on CUDA, judged against dense float64.

A module of its own so that several processes can share the work: nearly all of it is compiling
kernels, of which every number of features needs its own.

Legend: B sets, M targets, N outputs, F features.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F_

import setwise as sw

WIDTHS = (1, 2, 3, 4, 5, 15, 16, 17, 64, 92, 100, 256, 257, 328, 1224)
RESULTS = ("value", "d logits", "d target")
TYPES = (torch.float32, torch.bfloat16, torch.float16)
# Smallest and largest M and N: sets that take one launch, of every size, and those that do not.
SIZES = [(1, 7, 1, 7), (9, 15, 9, 15), (33, 63, 33, 63), (65, 255, 65, 255), (257, 699, 257, 699)]


@dataclass(frozen=True)
class Case:
    """One call; ``full`` means masks, weights, and a gradient to the target as well."""

    B: int
    M: int
    N: int
    F: int
    dtype: torch.dtype
    full: bool
    seed: int


@dataclass(frozen=True)
class Verdict:
    """The error of one result of a case, and how large it may be."""

    case: Case
    what: str
    error: float
    allowed: float

    @property
    def passed(self) -> bool:
        return self.error <= self.allowed  # False for NaN


def groups() -> list[list[Case]]:
    """270 cases; those of a group share most of their kernels."""
    draw = random.Random(0)
    result = []
    for dtype in TYPES:
        for F in WIDTHS:
            sizes = [*SIZES, draw.choice([(1, 19, 301, 699), (301, 699, 1, 19)])]
            group = []
            for k, (least_m, most_m, least_n, most_n) in enumerate(sizes):
                # Odd, for multiples of 16 are what kernels find easy and compile apart.
                M, N = draw.randint(least_m, most_m) | 1, draw.randint(least_n, most_n) | 1
                B = draw.choice([1, 3])
                group.append(Case(B, M, N, F, dtype, full=k % 2 == 0, seed=draw.randrange(2**31)))
            result.append(group)
    return sorted(result, key=lambda group: -group[0].F)  # what takes longest first


def judge(group: list[Case]) -> list[Verdict]:
    torch.set_float32_matmul_precision("highest")
    return [verdict for case in group for verdict in _judge_case(case)]


def inputs(case: Case) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Logits, target, which outputs and targets are valid, weights."""
    generator = torch.Generator("cuda").manual_seed(case.seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device="cuda")

    z = 2 * torch.randn(case.B, case.N, case.F, generator=generator, device="cuda")
    x = uniform(case.B, case.M, case.F)
    z, x = z.to(case.dtype), (x if case.seed % 2 else x.round()).to(case.dtype)
    if not case.full:
        return z, x, None, None, None
    outputs, targets = uniform(case.B, case.N) < 0.6, uniform(case.B, case.M) < 0.8
    outputs[:, -1] = True
    return z, x, outputs, targets, uniform(case.B, case.M) + 0.1


def dense(z: Tensor, x: Tensor, outputs: Tensor | None, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each set [B] as one would write it down, and all scores [B, M, N]."""
    scores = torch.einsum("bmf,bnf->bmn", x, z) - F_.softplus(z).sum(-1).unsqueeze(1)
    if outputs is not None:
        scores = scores.masked_fill(~outputs.unsqueeze(1), -math.inf)
    return -(scores.logsumexp(-1) * weight).sum(-1), scores


def _judge_case(case: Case) -> list[Verdict]:
    z, x, outputs, targets, weight = inputs(case)
    weights = torch.ones_like(x[..., 0], dtype=torch.float32) if weight is None else weight
    weights = weights if targets is None else weights * targets
    scale = torch.linspace(1, 2, case.B, device="cuda")  # the gradient that comes in

    def gradients(value: Tensor, *leaves: Tensor) -> list[Tensor]:
        wanted = leaves if case.full else leaves[:1]
        return [value.detach(), *torch.autograd.grad(value, wanted, scale.to(value.dtype))]

    def densely(kind: torch.dtype) -> tuple[list[Tensor], Tensor]:
        leaves = [t.to(kind).requires_grad_() for t in (z.detach(), x.detach())]
        value, scores = dense(*leaves, outputs, weights.to(kind))
        return gradients(value, *leaves), scores.detach()

    usual, _ = densely(torch.float32)
    exact, scores = densely(torch.float64)
    masks = {"input_valid": outputs, "target_valid": targets, "weight": weight}
    leaf, other = z.clone().requires_grad_(), x.clone().requires_grad_(case.full)
    value = sw.set_cross_entropy(leaf, other, **masks, reduction="none", impl="triton")
    ours = gradients(value, leaf, other)

    # In 16 bits a softmax weight is rounded before it multiplies target - sigmoid(logits), or the
    # logits; the dense computation in float32 does not do that.
    p = scores.softmax(-1) * (weights * scale[:, None]).unsqueeze(-1)
    sums = [p.sum(dim=1), p @ z.double().abs()]
    unit = 0.0 if case.dtype == torch.float32 else torch.finfo(case.dtype).eps / 2
    verdicts = []
    for i, (got, plain, right) in enumerate(zip(ours, usual, exact, strict=True)):
        largest = right.abs().max().clamp(min=1e-30)
        plain = plain.to(got.dtype)  # a gradient is returned in the type of its leaf
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, plain))
        if i > 0:
            allowed = allowed + unit * sums[i - 1].max() / largest
        verdicts.append(Verdict(case, RESULTS[i], error.item(), allowed.item() + 1e-5))
    return verdicts
