"""Hostile calls of the losses, drawn from a seed, and an oracle in float64 that knows no engine.

Legend: B sets, N outputs, M targets, F features.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional as F_

import setwise as sw

FLOATS = [torch.float32] * 4 + [torch.float64, torch.bfloat16, torch.float16]
PLACES = [0.0, 0.0, 1.0, 100.0, 1e3, 1e4]
LOSSES: dict[str, Callable[..., Any]] = {
    "set": sw.set_cross_entropy,
    "average": sw.set_average,
    "hausdorff": sw.hausdorff,
    "assignment": sw.assignment_cross_entropy,
    "ordered": sw.ordered_cross_entropy,
}


@dataclass
class Call:
    """One call; masks are booleans for the oracle, whatever the call is given."""

    name: str
    features: sw.Features
    input: Tensor
    target: Tensor
    outputs: Tensor  # [*, N] which are valid
    targets: Tensor  # [*, M]
    weight: Tensor  # [*, M]
    temperature: float = 1.0
    directed: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def run(self) -> Tensor:
        loss = LOSSES[self.name]
        return loss(self.input, self.target, self.features, reduction="none", **self.options)


def draw_call(seed: int) -> Call:
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    features = _features(draw)
    lead = draw.choice([(), (1,), (2,), (3,), (2, 2)])
    N, M = (draw.choice([0, 1, 1, 2, 3, 5, 8]) for _ in range(2))
    name = draw.choice(["set", "set", "set", *LOSSES])
    M = N if name == "ordered" else M
    y, x = _elements(draw, generator, features, (*lead, N), (*lead, M))
    dtype = draw.choice(FLOATS)
    y, x = y.to(dtype), x.to(draw.choice([dtype, dtype, torch.float32]))
    if dtype == torch.float16:  # which ends at 65504, and so do sums of its squares
        y, x = y.clamp(-1e4, 1e4), x.clamp(-1e4, 1e4)
    options: dict[str, Any] = {}
    outputs = _mask(draw, generator, lead, N, "input_valid", options)
    targets = _mask(draw, generator, lead, M, "target_valid", options)
    weight = torch.ones(*lead, M)
    if draw.random() < 0.4:
        weight = (3 * torch.rand(*lead, M, generator=generator)).floor()
        options["weight"] = weight
    call = Call(name, features, _strange(draw, y), _strange(draw, x), outputs, targets, weight)
    if name == "set":
        call.temperature = draw.choice([1.0, 10 ** draw.uniform(-6, 6), 1e-6, 1e6])
        given: Any = call.temperature
        if draw.random() < 0.3:
            given = torch.tensor(given)
            call.temperature = given.item()
        options["temperature"] = given
    if name in ("average", "hausdorff"):
        options["directed"] = call.directed = draw.random() < 0.5
    if name not in ("assignment", "ordered"):
        options["impl"] = draw.choice(["auto", "reference", "chunked"])
    call.options = options
    wanted = draw.choice([(True, True), (True, False), (False, True)])
    call.input.requires_grad_(wanted[0])
    call.target.requires_grad_(wanted[1])
    return call


def _features(draw: random.Random) -> sw.Features:
    def one() -> sw.Family:
        width, weight = draw.choice([1, 2, 3, 5]), draw.choice([1.0, 1.0, 0.5, 20.0])
        kind = draw.choice(["bernoulli", "categorical", "gaussian", "gaussian", "angle", "poisson"])
        if kind == "gaussian":
            return sw.Gaussian(width, weight, scale=draw.choice([0.01, 0.1, 1.0, 30.0]))
        if kind == "angle":
            return sw.Angle(width, weight, concentration=draw.choice([0.1, 5.0, 1e4]))
        if kind == "categorical":
            return sw.Categorical(width + 1, weight)
        return (sw.Bernoulli if kind == "bernoulli" else sw.Poisson)(width, weight)

    return sw.Features(*(one() for _ in range(draw.choice([1, 1, 1, 2, 3]))))


def _elements(
    draw: random.Random, generator: torch.Generator, features: sw.Features, ys: Any, xs: Any
) -> tuple[Tensor, Tensor]:
    """Outputs and targets; some repeat each other, some are the same on both sides."""
    logits, target = [], []
    for block in features.blocks:
        x = block.random_targets(xs, generator)
        y = draw.choice([0.0, 1.0, 1.0, 5.0]) * torch.randn(*ys, block.width, generator=generator)
        if isinstance(block, sw.Gaussian):
            place = draw.choice(PLACES)
            side = torch.randint(-1, 2, (*xs, 1), generator=generator)
            x = x + place * side
            y = block.scale * y + place * torch.randint(-1, 2, (*ys, 1), generator=generator)
        elif draw.random() < 0.1 and not isinstance(block, sw.Poisson | sw.Angle):
            y = 1e4 * y.sign()
        logits.append(y)
        target.append(x)
    y, x = torch.cat(logits, -1), torch.cat(target, -1)
    if draw.random() < 0.3 and y.shape[-2] > 1:
        y = y[..., :1, :].expand_as(y).clone()
    if draw.random() < 0.2 and x.shape[-2] > 1:
        x = x[..., :1, :].expand_as(x).clone()
    both = min(y.shape[-2], x.shape[-2])
    if draw.random() < 0.3 and both:
        y[..., :both, :] = features.from_probs(x[..., :both, :])
    return y, x


def _mask(
    draw: random.Random,
    generator: torch.Generator,
    lead: tuple[int, ...],
    size: int,
    name: str,
    options: dict[str, Any],
) -> Tensor:
    kind = draw.choice(["none", "none", "mask", "lengths"])
    if kind == "none":
        return torch.ones(*lead, size, dtype=torch.bool)
    if kind == "mask":
        options[name] = torch.rand(*lead, size, generator=generator) < 0.7
        return options[name]
    lengths = torch.randint(0, size + 1, lead, generator=generator)
    options[name] = lengths
    return torch.arange(size) < lengths.unsqueeze(-1)


def _strange(draw: random.Random, elements: Tensor) -> Tensor:
    """The same numbers in another layout."""
    kind = draw.choice(["plain", "plain", "transposed", "strided"])
    if kind == "transposed":
        return elements.mT.contiguous().mT
    if kind == "strided":
        return torch.stack([elements, torch.full_like(elements, math.nan)], dim=-1)[..., 0]
    return elements.clone()


def costs_of(features: sw.Features, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """All costs [M, N] of one set, and how large the terms are that an engine may form on the way.

    Of features that are compared these are no larger than the cost itself.
    """
    y, x = y.unsqueeze(0), x.unsqueeze(1)
    cost = size = torch.zeros(x.shape[0], y.shape[1], dtype=y.dtype)
    blocks = zip(features.blocks, features.split(y), features.split(x), strict=True)
    for block, z, t in blocks:
        if isinstance(block, sw.Gaussian):
            own = ((t - z) / block.scale).square().sum(-1) / 2
            terms = own
        elif isinstance(block, sw.Angle):
            own = 2 * block.concentration * ((t - z) / 2).sin().square().sum(-1)
            # Points on the circle round by an eps: a chord is so much longer or shorter.
            terms = own + (block.concentration * own).sqrt() * 2 * block.width
        elif isinstance(block, sw.Categorical):
            logs = z.log_softmax(-1)
            own, terms = -(t * logs).sum(-1), (t * logs.abs()).sum(-1) + z.abs().amax(-1)
        elif isinstance(block, sw.Poisson):
            rate = z.exp()
            own = (rate - t * z + torch.lgamma(t + 1)).sum(-1)
            terms = (rate + (t * z).abs() + torch.lgamma(t + 1).abs()).sum(-1)
        else:
            own = (t * F_.softplus(-z) + (1 - t) * F_.softplus(z)).sum(-1)
            terms = (t * z.abs() + F_.softplus(z)).sum(-1)
        cost, size = cost + block.weight * own, size + block.weight * terms
    return cost, size


def exact_loss(call: Call, costs: Tensor, weight: Tensor) -> Tensor:
    """Of one set, from the costs [M, N] of its valid targets and outputs."""
    M, N = costs.shape
    if call.name == "ordered":
        raise AssertionError("the ordered loss has no pairs")
    both = not call.directed
    if M == 0:
        endless = both and N > 0
        return costs.new_tensor(math.inf) if endless else costs.sum()
    if N == 0 or (call.name == "assignment" and M > N):
        return costs.new_tensor(math.inf)
    if call.name == "set":
        t, top = call.temperature, costs.detach().amin(-1, keepdim=True)
        return (weight * (top.squeeze(-1) - t * torch.logsumexp((top - costs) / t, -1))).sum()
    if call.name == "assignment":
        rows, columns = linear_sum_assignment((costs * weight.unsqueeze(-1)).detach().numpy())
        return (costs[rows, columns] * weight[rows]).sum()
    nearest, backwards = costs.amin(-1), costs.amin(-2)
    if call.name == "average":
        total = weight.sum()
        value = (weight * nearest).sum() / (total if total > 0 else 1.0)
        return value + backwards.mean() if both else value
    value = (weight * nearest).amax()
    return torch.maximum(value, backwards.amax()) if both else value


@dataclass(frozen=True)
class Verdict:
    """What is wrong with a call, or nothing; whether its gradients could be compared as well."""

    wrong: str
    differentiated: bool = False


# By how many roundings of the terms it is made of a cost may be off.
ROUNDINGS = 30


def judge_call(call: Call) -> Verdict:
    """Against the definition in float64, by an error that rounding alone can explain."""
    found = call.run()
    kinds = torch.promote_types(call.input.dtype, call.target.dtype)
    kind = torch.float64 if kinds == torch.float64 else torch.float32
    unit = ROUNDINGS * torch.finfo(kind).eps
    exact, allowed, steady = _exactly(call, torch.float64, unit)
    if found.shape != exact.shape or found.dtype != kind:
        return Verdict(f"{found.shape} of {found.dtype}, expected {exact.shape} of {kind}")
    endless = exact.isinf()
    if not torch.equal(found.isinf(), endless) or found.isnan().any():
        return Verdict(f"{found.tolist()}, exactly {exact.tolist()}")
    error = (found.double() - exact)[~endless].abs()
    if (error > allowed[~endless]).any():
        return Verdict(f"{found.tolist()}, exactly {exact.tolist()}, allowed {allowed.tolist()}")
    return _judge_gradients(call, found, kind, steady)


def _judge_gradients(call: Call, found: Tensor, kind: torch.dtype, steady: bool) -> Verdict:
    leaves = [t for t in (call.input, call.target) if t.requires_grad]
    finite = found[found.isfinite()]
    if not finite.requires_grad:
        return Verdict("")
    grads = torch.autograd.grad(finite.sum(), leaves, allow_unused=True)
    ours = [torch.zeros_like(t) if g is None else g for g, t in zip(grads, leaves, strict=True)]
    if any(g.isnan().any() or (g.isinf().any() and g.dtype != torch.float16) for g in ours):
        return Verdict("a gradient that is not finite")
    if not steady:
        return Verdict("")
    exact, dense = (_exact_gradients(call, dtype) for dtype in (torch.float64, kind))
    for got, plain, right in zip(ours, dense, exact, strict=True):
        if right.numel() == 0 or (got.dtype == torch.float16 and right.abs().max() > 6e4):
            continue  # float16 ends at 65504
        unit = 1e-4 + 2 * torch.finfo(got.dtype).eps
        error, usual = ((t.double() - right).abs().max() for t in (got, plain))
        if error > 3 * usual + unit * right.abs().max() + 1e-5:
            return Verdict(f"a gradient is off by {error}, dense by {usual}", True)
    return Verdict("", True)


def _exact_gradients(call: Call, dtype: torch.dtype) -> list[Tensor]:
    leaves = [t.detach().to(dtype) for t in (call.input, call.target)]
    wanted = [
        leaf.requires_grad_()
        for leaf, t in zip(leaves, (call.input, call.target), strict=True)
        if t.requires_grad
    ]
    value, _, _ = _exactly(call, dtype, 0.0, *leaves)
    value = value[value.isfinite()].sum()
    if not value.requires_grad:
        return [torch.zeros_like(t) for t in wanted]
    grads = torch.autograd.grad(value, wanted, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, wanted, strict=True)]


def _exactly(
    call: Call, dtype: torch.dtype, unit: float, y: Tensor | None = None, x: Tensor | None = None
) -> tuple[Tensor, Tensor, bool]:
    """The loss of each set, by how much it may be off, and whether so little changes its slope."""
    lead = call.input.shape[:-2]
    y = call.input.detach().to(dtype) if y is None else y
    x = call.target.detach().to(dtype) if x is None else x
    B, (N, F), M = math.prod(lead), y.shape[-2:], x.shape[-2]
    sets = zip(
        y.reshape(B, N, F), x.reshape(B, M, F), call.outputs.reshape(B, N),
        call.targets.reshape(B, M), call.weight.reshape(B, M).to(dtype), strict=True,
    )  # fmt: skip
    values, allowed, steady = [], [], True
    for logits, target, outputs, targets, weight in sets:
        if call.name == "ordered":
            costs, sizes = costs_of(call.features, logits, target)
            lacking = bool((targets & ~outputs).any())
            own = (weight * costs.diagonal())[targets].sum()
            values.append(costs.new_tensor(math.inf) if lacking else own)
            allowed.append(unit * ((weight * sizes.diagonal())[targets].sum() + own.abs()))
            continue
        costs, sizes = costs_of(call.features, logits[outputs], target[targets])
        value = exact_loss(call, costs, weight[targets])
        values.append(value)
        bound, calm = _bound(call, costs.detach(), sizes.detach(), weight[targets], value, unit)
        allowed.append(bound)
        steady = steady and calm
    value, bounds = torch.stack(values).reshape(lead), torch.stack(allowed).reshape(lead)
    return value, bounds.detach() + 1e-5, steady


def _bound(
    call: Call, costs: Tensor, sizes: Tensor, weight: Tensor, value: Tensor, unit: float
) -> tuple[Tensor, bool]:
    """What rounding may change of a loss, by the pairs that have a say in it."""
    M, N = costs.shape
    if M == 0 or N == 0 or not value.isfinite():
        return value.new_zeros(()), True
    if call.name == "assignment":
        # A matching that is not the best has no pair that costs more than all of the best.
        relevant = weight.unsqueeze(-1) * (costs - unit * sizes) <= 1.01 * value.abs() + 1e-3
        most = (sizes * relevant).amax(-1)
        return unit * (2 * (weight * most).sum() + value.abs()), False
    t = call.temperature if call.name == "set" else 0.0
    most, calm = _relevant(costs, sizes, unit, t)
    heavy = weight if call.name == "set" else torch.ones_like(weight).maximum(weight)
    total = (heavy * (most + t * math.log(N + 1))).sum() + value.abs()
    if not call.directed:
        most, back_calm = _relevant(costs.mT, sizes.mT, unit, t)
        total, calm = total + most.sum(), calm and back_calm
    # Of equal targets, or of equally bad ones, any may be the worst.
    return unit * total, calm and call.name != "hausdorff"


def _relevant(costs: Tensor, sizes: Tensor, unit: float, t: float) -> tuple[Tensor, bool]:
    """Of each row, the largest terms among the pairs that may count; whether none else might."""
    ceiling = (costs + unit * sizes).amin(-1, keepdim=True) + 40 * t
    relevant = costs - unit * sizes <= ceiling
    most = (sizes * relevant).amax(-1)
    if t == 0.0:
        return most, bool((relevant.sum(-1) == 1).all())
    # However they round, costs that are all the same do so alike.
    tied = costs.amax(-1) == costs.amin(-1)
    return most, bool(((unit * most <= 0.01 * t) | tied).all())
