"""What the exact simulators share: checks at their doors, and random bits that never change.

Legend: C positions; ``*`` any leading dimensions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def require_int(name: str, value: int, least: int, most: int | None = None) -> None:
    """An int, no bool, within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}: expected an int, got {type(value).__name__}")
    if value < least or (most is not None and value > most):
        bounds = f"at least {least}" if most is None else f"in {least}..{most}"
        raise ValueError(f"{name}: must be {bounds}, got {value}")


def require_shape(name: str, values: Tensor, *shape: int | str) -> None:
    """A word in ``shape`` stands for any size, a leading ``*`` for any leading dimensions."""
    if not isinstance(values, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(values).__name__}")
    sizes = shape[1:] if shape[0] == "*" else shape
    enough = values.dim() >= len(sizes) if shape[0] == "*" else values.dim() == len(sizes)
    pairs = zip(sizes, values.shape[-len(sizes) :], strict=False)
    if not enough or any(isinstance(size, int) and size != given for size, given in pairs):
        expected = ", ".join(map(str, shape))
        raise ValueError(f"{name}: expected shape [{expected}], got {tuple(values.shape)}")


def integers(name: str, values: Tensor) -> Tensor:
    """Any tensor of integers, as 64-bit ones."""
    given = values.dtype if isinstance(values, Tensor) else type(values).__name__
    if given not in (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8):
        raise TypeError(f"{name}: expected a tensor of integers, got {given}")
    return values.long()


def item(name: str, place: list[int]) -> str:
    """How to name one entry of an argument in a message."""
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def random_bits(purpose: str, seed: int) -> np.random.PCG64:
    """A stream for each purpose: draws of different kinds from one seed have nothing in common."""
    require_int("seed", seed, 0)
    return np.random.PCG64([seed, *purpose.encode()])


def smaller_later(numbers: Tensor) -> Tensor:
    """For each position [*, C], how many later ones hold a smaller number: digits of the rank."""
    positions = range(numbers.shape[-1])
    counts = [(numbers[..., c + 1 :] < numbers[..., c, None]).sum(-1) for c in positions]
    return torch.stack(counts, dim=-1)
