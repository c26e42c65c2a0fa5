"""Cases of the Triton engine, and its agreement with the dense one in float64."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.kernels import dispatch

Shape = tuple[int, int, int, int]  # sets, queries or targets, keys or outputs, features
slow = partial(pytest.param, marks=pytest.mark.slow)

EXACT = 1e-5  # the interpreter computes products exactly
HALF = 2e-3  # but weights may have been rounded before, to float16 or to the bits of TF32


def check_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels get their constants by position, which the interpreter would not notice."""
    from setwise.kernels.triton.launch import Launcher

    honest = Launcher.__call__

    def checked(self: Launcher, grid: Any, tensors: Any, numbers: Any) -> None:
        names = list(inspect.signature(self._kernel.fn).parameters)
        assert names[len(tensors) + len(numbers) :] == list(self._constants)
        honest(self, grid, tensors, numbers)

    monkeypatch.setattr(Launcher, "__call__", checked)


def compare(call: Callable[..., list[Tensor]], leaves: list[Tensor], extra: float = EXACT) -> None:
    """``call(impl, *leaves)`` by Triton, and densely in float32, against dense float64."""
    ours = call("triton", *leaves)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # or some processors multiply in bfloat16
    try:
        dense, exact = (
            call("reference", *(t.to(kind) for t in leaves))
            for kind in (torch.float32, torch.float64)
        )
    finally:
        torch.set_float32_matmul_precision(before)
    for got, usual, right in zip(ours, dense, exact, strict=True):
        assert got.shape == right.shape
        largest = right.abs().max().clamp(min=1e-30)
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, usual))
        assert error <= allowed + extra, f"error {error:.1e}, of the dense {allowed:.1e}"


def operands(B: int, M: int, N: int, F: int, masked: bool = False) -> list[Tensor]:
    """Queries, keys, bias; if masked, some keys are masked, and of many all but the last."""
    generator = torch.Generator().manual_seed(B + 10 * M + 100 * N + 1000 * F)
    shapes = [(B, M, F), (B, N, F), (B, N)]
    queries, keys, bias = (torch.randn(shape, generator=generator) for shape in shapes)
    if masked:
        masked = torch.rand(B, N, generator=generator) < 0.4
        masked[:, : max(0, N - 4)] |= N > 256
        masked[:, -1] = False
        bias = bias.masked_fill(masked, -math.inf)
    return [queries, keys, bias]


def value_and_gradients(impl: Any, *leaves: Tensor) -> list[Tensor]:
    leaves = tuple(t.detach().requires_grad_() for t in leaves)
    value = dispatch.logsumexp(*leaves, impl, skip_negligible=True)
    grad = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value.detach(), *torch.autograd.grad(value, leaves, grad)]


PRECISE = [
    (precision, extra, shape)
    for precision, extra in (("highest", EXACT), ("medium", HALF))
    for shape in ((1, 70, 140, 16), (1, 66, 70, 300))
]
PRECISE += [slow("highest", EXACT, (1, 66, 70, 100)), ("medium", HALF, (1, 66, 70, 100))]
# Which have blocks of their own, of the backward and of the forward pass.
PRECISE += [slow("medium", HALF, (1, 256, 256, 256)), slow("medium", HALF, (1, 520, 513, 70))]
every_precision = pytest.mark.parametrize(("precision", "extra", "shape"), PRECISE, ids=str)


def arguments(B: int, M: int, N: int, F: int) -> list[Tensor]:
    """Logits, target and weight."""
    generator = torch.Generator().manual_seed(B + 10 * M + 100 * N + 1000 * F)
    logits = 3 * torch.randn(B, N, F, generator=generator)
    target, weight = (torch.rand(shape, generator=generator) for shape in ((B, M, F), (B, M)))
    return [logits, target, weight + 0.1]


def masks(B: int, M: int, N: int, F: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(M + N)
    outputs, targets = (torch.rand(B, size, generator=generator) < 0.6 for size in (N, M))
    outputs[:, -1] = True
    return {"input_valid": outputs, "target_valid": targets}


def loss_to(
    *wanted: int, loss: Any = sw.set_cross_entropy, twice: bool = False, **options: Any
) -> Callable[..., list[Tensor]]:
    """A loss for `compare`, with gradients to the wanted among logits, target and weight."""

    def call(impl: Any, *leaves: Tensor) -> list[Tensor]:
        z, x, w, *_ = [t.detach() for t in leaves] + [None]
        into = [(z, x, w)[i].requires_grad_() for i in wanted]
        value = loss(z, x, weight=w, impl=impl, **options)
        scale = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
        grads = torch.autograd.grad(value, into, scale, create_graph=twice)
        if twice:
            mixture = torch.stack([grad.sin().sum() for grad in grads]).sum()
            grads += torch.autograd.grad(mixture, into)
        return [t.detach() for t in (value, *grads)]

    return call


FEW = [(2, 1, 1, 1), (3, 5, 8, 6), (2, 7, 3, 130)]
SMALL = [*FEW[:2], slow(FEW[2]), slow((3, 5, 9, 6)), (2, 33, 20, 16), (1, 7, 64, 130)]
LARGE = [(2, 20, 66, 3), slow((1, 5, 520, 2)), slow((1, 20, 300, 40)), slow((2, 130, 70, 70))]
LARGE += [slow((1, 65, 5, 300))]
