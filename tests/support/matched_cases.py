"""Losses of one matching, judged against float64: in the interpreter and on CUDA.

Legend: B sets, M targets, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import setwise as sw
from fused_cases import ELEMENTS

LOSSES: dict[str, Callable[..., Tensor]] = {
    "assignment": sw.assignment_cross_entropy,
    "stable": sw.stable_matching_cross_entropy,
}


def draw(
    features: sw.Features, M: int, N: int, *options: str, B: int = 3, seed: int = 0
) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Outputs, targets and what of the rest is among the options."""
    g = torch.Generator().manual_seed(seed)
    z = 1.5 * torch.randn(B, N, features.width, generator=g)
    x = features.random_targets((B, M), g)
    given = {
        "weight": torch.rand(B, M, generator=g),
        "presence": torch.randn(B, N, generator=g),
        "input_valid": torch.rand(B, N, generator=g) < 0.8,
        "target_valid": torch.rand(B, M, generator=g) < 0.6,
    }
    return z, x, {name: given[name] for name in options}


def values_and_gradients(
    function: Callable[..., Tensor], z: Tensor, x: Tensor, dtype: torch.dtype, **given: Any
) -> list[Tensor]:
    """With gradients to the outputs and to the presence, if there is one."""
    leaves = [z.detach().to(dtype).requires_grad_()]
    given = {k: t.to(dtype) if _is_real(t) else t for k, t in given.items()}
    if "presence" in given:
        given["presence"] = given["presence"].detach().requires_grad_()
        leaves.append(given["presence"])
    value = function(leaves[0], x.to(dtype), **given)
    finite = torch.where(value.isfinite(), value, 0.0)
    scale = torch.arange(1.0, 1.0 + value.numel()).to(value).reshape(value.shape)
    slopes = torch.autograd.grad((finite * scale).sum(), leaves)
    return [t.detach().cpu().double() for t in (value, *slopes)]


def _is_real(given: Any) -> bool:
    return isinstance(given, Tensor) and given.is_floating_point()


def judge(
    loss: str, element: str, M: int, N: int, *options: str, device: str = "cpu", **given: Any
) -> None:
    """Of float32 on the device, against float64 on the CPU."""
    features = ELEMENTS[element]
    z, x, more = draw(features, M, N, *options)
    given = {"features": features, "reduction": "none", **more, **given}
    there = {k: t.to(device) if isinstance(t, Tensor) else t for k, t in given.items()}
    found = values_and_gradients(LOSSES[loss], z.to(device), x.to(device), torch.float32, **there)
    exact = values_and_gradients(LOSSES[loss], z, x, torch.float64, **given)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-5)
