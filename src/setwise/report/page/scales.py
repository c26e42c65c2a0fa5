"""From numbers to places in a drawing, and the round numbers that are written at its edges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Numbers from low to high lie between two places; logarithmically, if so wished."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a number, to a tenth of a unit.

        >>> Scale(0, 10, 100, 200)(5), Scale(1, 100, 0, 50, log=True)(10)
        (150.0, 25.0)
        """
        low, high, at = self.low, self.high, value
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(value)
        return round(self.start + (self.end - self.start) * (at - low) / (high - low), 1)

    def ticks(self) -> list[float]:
        """A few round numbers within.

        >>> Scale(0, 1500, 0, 1).ticks(), Scale(0.5, 300, 0, 1, log=True).ticks()
        ([0, 500, 1000, 1500], [1, 10, 100])
        """
        return _powers(self.low, self.high) if self.log else _round_numbers(self.low, self.high)


def fitted(values: Sequence[float], start: float, end: float, log: bool = False) -> Scale:
    """The scale on which just these numbers lie; those that have no place on it are left out."""
    usable = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    low, high = (min(usable), max(usable)) if usable else (1.0, 2.0)
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
    return Scale(low, high, start, end, log)


def short(value: float) -> str:
    """A number at an axis.

    >>> [short(value) for value in (0, 0.25, 1500, 20000, 1e-6, 3_000_000)]
    ['0', '0.25', '1500', '20k', '1e-06', '3M']
    """
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= 10_000 and abs(value) >= size and value % (size / 10) == 0:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _round_numbers(low: float, high: float, most: int = 4) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 2.5, 5, 10) if power * n >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [_exact(n * step) for n in range(first, last + 1)]


def _powers(low: float, high: float, most: int = 5) -> list[float]:
    """Powers of ten, of a thousand where these are too many, of two where they are too few."""
    for base in (10, 1000):
        first, last = (math.log(end, base) for end in (low, high))
        powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
        if len(powers) < 2:
            break
        if len(powers) <= most:
            return [_exact(float(base) ** n) for n in powers]
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    return [_exact(2.0**n) for n in range(first, last + 1, max(1, (last - first) // most + 1))]


def _exact(value: float) -> float:
    """Without what the arithmetic left over; a whole number as one."""
    value = float(f"{value:.12g}")
    return int(value) if value.is_integer() else value
