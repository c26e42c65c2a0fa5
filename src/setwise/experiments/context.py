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


# Sums are split among threads, and the last bits depend on how: after some epochs the results do.
# So their number must not be that of the cores a machine happens to have.
THREADS = 1


@contextmanager
def fixed_threads(device: torch.device, threads: int) -> Iterator[None]:
    """So many threads for what is computed on a CPU; a GPU sums up in its own way."""
    before = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def training_context(
    device: torch.device, precision: str, threads: int = THREADS
) -> Iterator[None]:
    """The current device, PyTorch's precision of float32 products, and its number of threads.

    Likewise the caller's random numbers go on as if nothing had been drawn.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    on_cuda = device.type == "cuda"
    try:
        with (
            fixed_threads(device, threads),
            torch.cuda.device(device) if on_cuda else nullcontext(),
            torch.random.fork_rng(devices=[device] if on_cuda else []),
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
