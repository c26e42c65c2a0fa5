"""What an element is made of, as fused kernels are told."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from setwise.kernels.row_losses import Blocks
from setwise.kernels.triton.families import KINDS, SQUARE
from setwise.kernels.triton.tiles import power_of_2


@dataclass(frozen=True, eq=False)  # one object for each, known by its identity: see `describe`
class Element:
    """Of each block: what is compiled into a kernel, and the number that is not."""

    kinds: tuple[int, ...]
    widths: tuple[int, ...]
    starts: tuple[int, ...]  # the first feature
    places: tuple[int, ...]  # the same if squares come first
    padded: tuple[int, ...]  # the power of two that holds the features
    numbers: tuple[float, ...]
    squares: int  # how many features cost the square of a difference


@lru_cache(maxsize=256)
def describe(blocks: Blocks) -> Element:
    """The element of these blocks."""
    names, widths, numbers = zip(*blocks, strict=True)
    kinds = tuple(KINDS[name] for name in names)
    order = sorted(range(len(blocks)), key=lambda k: kinds[k] != SQUARE.value)
    starts = tuple(sum(widths[:k]) for k in range(len(blocks)))
    places = tuple(sum(widths[o] for o in order[: order.index(k)]) for k in range(len(blocks)))
    padded = tuple(max(2, power_of_2(w)) for w in widths)
    squares = sum(widths[k] for k in order if kinds[k] == SQUARE.value)
    return Element(kinds, widths, starts, places, padded, numbers, squares)


def numbers_on(device: torch.device, numbers: tuple[float, ...]) -> Tensor:
    """The numbers of the blocks; kept, but not what a CUDA graph would fill only when replayed.

    For each stream: another one may be far ahead of that which fills them.
    """
    if device.type != "cuda":
        return _kept(device, numbers, 0)
    if torch.cuda.is_current_stream_capturing():
        return _filled(device, numbers)
    return _kept(device, numbers, torch._C._cuda_getCurrentRawStream(device.index))


def _filled(device: torch.device, numbers: tuple[float, ...]) -> Tensor:
    """Without a copy from the host, which a graph could not repeat."""
    return torch.cat(
        [torch.full((1,), number, dtype=torch.float32, device=device) for number in numbers]
    )


@lru_cache(maxsize=256)
def _kept(device: torch.device, numbers: tuple[float, ...], stream: int) -> Tensor:
    return _filled(device, numbers)
