"""How much the tracer does at once: as much as there is memory for, which changes no byte."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

DEVICES = ("cpu", "cuda")  # that the tracer draws on
_RAYS, _PIXELS = 2**16, 2**14  # on the CPU: more would leave its caches
_POINTS = 32  # of a pixel, at most, for so many: what each of them sees is kept
_SHARE = 4  # of the free memory of a GPU one is taken, for others may use it as well
_BYTES = 5 * 2**10  # for each ray and pixel, in scenes with as many objects as a table has room for
_LEAST, _MOST = 2**12, 2**23  # rays on a GPU; more would not make it any busier


class Chunks:
    """So many ``rays`` are traced together, in scenes of so many ``pixels``, on a device.

    On a GPU this depends on the memory that is free at first.
    """

    def __init__(self, device: torch.device) -> None:
        self.rays, self.pixels = _RAYS, _PIXELS
        if device.type == "cuda":
            self.rays = self.pixels = rays_within(_free(device))

    def scenes(self, width: int, height: int, samples: int = 1) -> int:
        """So many are drawn together, which bounds the memory as far as one picture does."""
        return max(1, self.pixels // (width * height * math.ceil(samples / _POINTS)))

    def run(self, work: Callable[[], T]) -> T:
        """What work gives; where the memory ends, it is done again in smaller parts.

        These stay smaller: what has taken the memory may well keep it.
        """
        while True:
            try:
                return work()
            except torch.cuda.OutOfMemoryError:
                if self.rays <= _LEAST:
                    raise
            # Not above, where the error still holds on to all that was computed.
            torch.cuda.empty_cache()
            self.rays, self.pixels = self.rays // 2, self.pixels // 2


def rays_within(free: int) -> int:
    """How many rays are traced together where so many bytes are free.

    >>> rays_within(5 * 2**33) == 2**21, rays_within(2**50) == 2**23
    (True, True)
    """
    return min(max(free // _SHARE // _BYTES, _LEAST), _MOST)


def _free(device: torch.device) -> int:
    """Bytes of a GPU that nobody uses; what PyTorch keeps for later tensors is ours to use."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept
