"""What the host needs for the parts of a step with small sets, before the device has run anything.

Such a step is over on the device long before the host has started it, so these times are what is
measured in eager mode. Some of them are PyTorch's own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import setwise as sw
from setwise.arguments import check_call

# What a host that others share does not disturb is the median, what it disturbs the slowest tenth.
# It is now fast, now slow, so the parts take turns.
ROUNDS, CALLS = 16, 50
# As in `puzzle`, but few sets: the device must not be what is waited for.
SHAPE = (10, 9, 15)


class _Nothing(torch.autograd.Function):
    """What every operation in Python costs under autograd."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> Tensor:
        ctx.like = logits
        return logits.detach().new_empty(())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.empty_like(ctx.like)


def host_us() -> dict[str, dict[str, float]]:
    """Microseconds of each part on a CUDA host: the median, and what one call in ten exceeds."""
    logits = torch.randn(SHAPE, device="cuda", requires_grad=True)
    target, losses = torch.ones(SHAPE, device="cuda"), torch.zeros(SHAPE[0], device="cuda")

    def with_backward(loss: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(loss(), logits)

    def loss() -> Tensor:
        return sw.set_cross_entropy(logits, target)

    step = with_backward(loss)

    def in_one_thread() -> None:
        with torch.autograd.set_multithreading_enabled(False):
            step()

    parts: dict[str, Callable[[], object]] = {
        "check": lambda: check_call(logits, target, None, None, None, None, "mean"),
        "start": _kernel(logits.detach(), target),
        "sum": losses.sum,
        "function": with_backward(lambda: _Nothing.apply(logits)),
        "step": step,
        "one_thread": in_one_thread,
        "native": with_backward(logits.sum),
    }
    for part in parts.values():
        _times(part)  # some compile
    times: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(ROUNDS):
        for name, part in parts.items():
            times[name] += _times(part)
    return {
        name: {"median": statistics.median(found), "p90": statistics.quantiles(found, n=10)[-1]}
        for name, found in times.items()
    }


def _kernel(logits: Tensor, target: Tensor) -> Callable[[], object]:
    """The start of the kernel for small sets."""
    from setwise.kernels import matmul_precision
    from setwise.kernels.triton import plans

    (B, N, F), losses, gradient = logits.shape, logits.new_empty(len(logits)), logits.clone()
    precision = matmul_precision.dot_precision(logits.dtype)
    launch, grid = plans.small_set_cross_entropy(B, N, N, F, False, False, False, True, precision)
    tensors = (target, logits, losses, losses, losses, losses, losses, gradient)
    return lambda: launch(grid, tensors, (N, N, -1.0))


def _times(call: Callable[[], object]) -> list[float]:
    torch.cuda.synchronize()  # or the queue of the device would fill up
    times = []
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start))
    return times
