"""PyTorch's global settings while a network trains; afterwards they are as they were before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch


def default_generator(device: torch.device) -> torch.Generator:
    """The one that noise and dropout draw from; no other is touched."""
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[torch.cuda.current_device()]


@contextmanager
def training_context(device: torch.device, precision: str) -> Iterator[None]:
    """The current device and PyTorch's precision of float32 products.

    Likewise the caller's random numbers go on as if nothing had been drawn.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    on_cuda = device.type == "cuda"
    try:
        with (
            torch.cuda.device(device) if on_cuda else nullcontext(),
            torch.random.fork_rng(devices=[device] if on_cuda else []),
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
