"""Calls that fused kernels serve, judged against dense float64: in the interpreter and on CUDA.

Legend: B sets, M targets, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.kernels import dispatch
from setwise.kernels.row_losses import Call

ELEMENTS = {
    "Bernoulli": sw.Features(sw.Bernoulli(6, weight=0.5)),
    "categorical": sw.Features(sw.Categorical(5), sw.Categorical(3)),
    "categorical as Bernoulli": sw.Features(sw.Categorical(5, scored_as="bernoulli")),
    "points": sw.Features(sw.Gaussian(3, scale=0.7)),
    "coordinates": sw.Features(sw.Gaussian(6)),
    "embeddings": sw.Features(sw.Gaussian(66, scale=4.0)),  # too many to be compared in tf32
    "boxes": sw.Features(sw.Categorical(7, weight=2.0), sw.Gaussian(4), sw.Bernoulli(3)),
    "few of two kinds": sw.Features(sw.Categorical(2), sw.Gaussian(2)),
}
LOSSES: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "SH": (sw.set_cross_entropy, {"temperature": 1.0}),
    "SH at a temperature": (sw.set_cross_entropy, {"temperature": 2.5}),
    "SH at a temperature on the device": (
        sw.set_cross_entropy,
        {"temperature": torch.tensor(0.3)},
    ),
    "A1H": (sw.set_average, {}),
    "A1H in both directions": (sw.set_average, {"directed": False}),
    "H1H": (sw.hausdorff, {}),
    "H1H in both directions": (sw.hausdorff, {"directed": False}),
}


def count_losses(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType = dispatch, way: str = "fused_loss"
) -> list[str]:
    """The modes of the losses that are computed in this way of a module from now on."""
    modes: list[str] = []
    honest = getattr(module, way)

    def counted(one: Any, other: Any, call: Call, *others: Any) -> Tensor:
        modes.append(call.mode)
        return honest(one, other, call, *others)

    monkeypatch.setattr(module, way, counted)
    return modes


def known_tapes() -> list[str]:
    """What is known of each kind of calls: a "tape", or a word."""
    from setwise.kernels.triton import tapes  # not every machine has Triton

    return [tape if isinstance(tape, str) else "tape" for tape in tapes._tapes.values()]


def compare_second_derivatives(impl: str) -> None:
    """Of boxes, and gradients of a batch of losses at once, with those of the reference."""
    features = ELEMENTS["boxes"]
    x, results = features.random_targets((2, 4)), []
    for one in (impl, "reference"):
        z = torch.randn(2, 5, features.width, generator=torch.Generator().manual_seed(1))
        z.requires_grad_()
        value = sw.set_cross_entropy(z, x, features, temperature=2.0, impl=one, reduction="none")  # type: ignore[arg-type]
        (first,) = torch.autograd.grad(value.sum(), z, create_graph=True)
        second = torch.autograd.grad(first.square().sum(), z, retain_graph=True)[0]
        each = torch.autograd.grad(value, z, torch.eye(2), is_grads_batched=True)[0]
        results.append((first.detach(), second, each))
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-5)


def judge(
    features: sw.Features,
    loss: str,
    M: int,
    N: int,
    *,
    masked: bool = False,
    reduction: str = "mean",
    device: str = "cpu",
    tf32: bool = False,
    seed: int = 0,
    impl: str = "triton",
) -> None:
    """Value and gradient are no further from dense float64 than dense float32, plus 1e-5."""
    function, options = LOSSES[loss]
    generator = torch.Generator().manual_seed(seed)
    z = 1.5 * torch.randn(2, N, features.width, generator=generator)
    x = features.random_targets((2, M), generator)
    given: dict[str, Tensor] = {}
    if masked:
        given["input_valid"] = torch.rand(2, N, generator=generator) < 0.7
        given["target_valid"] = torch.rand(2, M, generator=generator) < 0.7
        given["weight"] = torch.rand(2, M, generator=generator)
    found = []
    for engine, dtype in ((impl, torch.float32), ("reference", torch.float32),
                          ("reference", torch.float64)):  # fmt: skip
        leaf = z.to(device, dtype).requires_grad_()
        moved = {k: t.to(device) for k, t in {**options, **given}.items() if isinstance(t, Tensor)}
        value = function(
            leaf, x.to(device, dtype), features, impl=engine, reduction=reduction,
            **{**options, **moved},
        )  # fmt: skip
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        found.append((value.detach().double(), gradient.double()))
    for ours, dense, exact in zip(*found, strict=True):
        size = exact.abs().max().clamp(min=1.0)
        # tf32 holds 11 bits; the interpreter's dense products have them all.
        allowed = (dense - exact).abs().max() + (2e-3 if tf32 else 1e-5) * size
        assert (ours - exact).abs().max() <= allowed
