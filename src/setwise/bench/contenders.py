"""Everything that can compute set cross entropy here, under one call: ``loss(logits, target)``.

Legend: B sets, N outputs and as many targets, F Bernoulli features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import setwise as sw

Loss = Callable[[Tensor, Tensor], Tensor]
SIXTEEN_BITS = "matmul_bf16_flops"


@dataclass(frozen=True)
class Contender:
    """One way to compute the loss: its type of input, and whether targets get gradients too.

    ``products`` names the rate in `limits.ceilings` of the products that it forms.
    """

    name: str
    loss: Loss
    dtype: torch.dtype = torch.float32
    both_sides: bool = False
    products: str = "matmul_flops"
    # Shapes it cannot take at all, with the reason; None if it can.
    refuses: Callable[[int, int, int], str | None] = lambda B, N, F: None


def dense(logits: Tensor, target: Tensor) -> Tensor:
    """What one writes without a library."""
    scores = torch.einsum("bmf,bnf->bmn", target, logits) - F.softplus(logits).sum(-1)[:, None]
    return -torch.logsumexp(scores, dim=-1).sum(-1).mean()


def available(device: str) -> list[Contender]:
    """The contenders that can run on this device with what is installed."""
    # Compiled for each shape alone: one graph for any shape would be slower.
    contenders = [
        Contender("dense", dense),
        Contender("compiled", torch.compile(dense, dynamic=False)),
    ]
    if device == "cuda":
        # As for the peers: nothing is skipped.
        ours = partial(sw.set_cross_entropy, skip_negligible=False)
        contenders += [
            # Where tf32 is allowed, products are of float16, which has as many bits.
            Contender("setwise-tf32", ours, products=SIXTEEN_BITS),
            Contender("setwise-bf16", ours, torch.bfloat16, products=SIXTEEN_BITS),
            Contender(
                "setwise-bf16-both", ours, torch.bfloat16, both_sides=True, products=SIXTEEN_BITS
            ),
        ]
        if find_spec("cut_cross_entropy"):
            contenders.append(cut_cross_entropy())
    else:
        contenders += [
            Contender("setwise", sw.set_cross_entropy),
            Contender("setwise-chunked", _chunked),
        ]
    if find_spec("pykeops"):
        contenders.append(Contender("pykeops", _keops))
    return contenders


def _chunked(logits: Tensor, target: Tensor) -> Tensor:
    return sw.set_cross_entropy(logits, target, impl="chunked")


def cut_cross_entropy() -> Contender:
    """Cut Cross Entropy (Wijmans et al., 2024), whose logsumexp is ours up to a term per target.

    It has no bias and wants features in multiples of 16: the bias goes in as one more feature. It
    computes in bfloat16 and always the gradients of both sides; nothing is filtered.
    """
    from cut_cross_entropy import linear_cross_entropy

    def loss(logits: Tensor, target: Tensor) -> Tensor:
        z, x = logits[0], target[0]
        bias = -F.softplus(z.float()).sum(-1, keepdim=True).to(z.dtype)
        pad = -(z.shape[-1] + 1) % 16
        z = F.pad(torch.cat([z, bias], dim=-1), (0, pad))
        x = F.pad(torch.cat([x, torch.ones_like(x[:, :1])], dim=-1), (0, pad))
        labels = torch.arange(len(x), device=x.device)
        return linear_cross_entropy(x, z, labels, reduction="sum", filter_eps=None)

    def refuses(B: int, N: int, F: int) -> str | None:
        return "takes one set at a time" if B > 1 else None

    return Contender(
        "cut-cross-entropy", loss, torch.bfloat16, both_sides=True, products=SIXTEEN_BITS,
        refuses=refuses,
    )  # fmt: skip


def _keops(logits: Tensor, target: Tensor) -> Tensor:
    """KeOps (Charlier et al., 2021): the same reduction over a symbolic matrix."""
    from pykeops.torch import LazyTensor

    bias = -F.softplus(logits).sum(-1)
    x: Any = LazyTensor(target[:, :, None, :].contiguous())
    z: Any = LazyTensor(logits[:, None, :, :].contiguous())
    scores = (x | z) + LazyTensor(bias[:, None, :, None].contiguous())
    return -scores.logsumexp(dim=2).sum((1, 2)).mean()
