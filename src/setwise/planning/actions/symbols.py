"""Symbols: what the elements of a set are called, so that a set is a set of propositions.

Legend: T sets, N elements, F numbers of an element, C features of it, V values of a feature.

An element is a tuple of C values, such as tile 3 at x = 0, y = 2. Every value has a number among
those of its feature, and every element a code, in which these numbers are the digits. Nothing but
this file knows how elements were spelled; codes learned from looks could take its place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from setwise.features import Features

Value = int | float | str
Element = tuple[Value, ...]
State = frozenset[int]  # codes of elements
MOST_CODES = 10**7


class UnknownSymbolError(ValueError):
    """An element that has a value which was never seen."""


@dataclass(frozen=True)
class Symbols:
    """The features of an element by name, and the values that each has taken.

    >>> symbols = Symbols(("disk", "peg"), ((1, 2), ("left", "right")))
    >>> symbols.code((2, "left")), symbols.element(2)
    (2, (2, 'left'))
    >>> symbols.code((3, "left"))
    Traceback (most recent call last):
    setwise.planning.actions.symbols.UnknownSymbolError: (3, 'left'): its disk was never seen;
    seen were 1, 2
    """

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]  # of each feature, in order
    widths: tuple[int, ...] | None = None  # how many numbers of a tensor spell each; None: words
    dtype: torch.dtype = torch.float32  # of such tensors

    def __post_init__(self) -> None:
        if self.count > MOST_CODES:
            sizes = ", ".join(
                f"{name} {len(values)}"
                for name, values in zip(self.names, self.values, strict=True)
            )
            raise ValueError(
                f"{self.count} different elements could be made of these values ({sizes}), more "
                f"than {MOST_CODES}; features have to be discrete: round those that are not, or "
                f"let symbols of them be learned (fit_symbols, --measured)"
            )

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each feature has."""
        return tuple(len(values) for values in self.values)

    @property
    def count(self) -> int:
        """How many different elements the values could make."""
        return math.prod(self.sizes)

    def code(self, element: Element) -> int:
        """The code of an element; an error if one of its values was never seen."""
        if len(element) != len(self.names):
            raise ValueError(
                f"{element}: expected {len(self.names)} values, {', '.join(self.names)}, "
                f"got {len(element)}"
            )
        code = 0
        for name, values, value in zip(self.names, self.values, element, strict=True):
            if value not in values:
                seen = ", ".join(map(str, values[:20])) + (", ..." if len(values) > 20 else "")
                raise UnknownSymbolError(f"{element}: its {name} was never seen; seen were {seen}")
            code = code * len(values) + values.index(value)
        return code

    def element(self, code: int) -> Element:
        """The values of an element."""
        return tuple(
            values[digit] for values, digit in zip(self.values, self.digits(code), strict=True)
        )

    def digits(self, code: int) -> tuple[int, ...]:
        """The number of each value of an element."""
        found = []
        for size in reversed(self.sizes):
            code, digit = divmod(code, size)
            found.append(digit)
        return tuple(reversed(found))

    def state(self, elements: Iterable[Element] | Tensor) -> State:
        """A set [N, F] or a list of elements, as codes; no element may be there twice."""
        read = self._rows(elements) if isinstance(elements, Tensor) else list(elements)
        codes = [self.code(tuple(element)) for element in read]
        if len(set(codes)) < len(codes):
            twice = next(code for code in codes if codes.count(code) > 1)
            raise ValueError(f"{self.element(twice)}: is there twice; elements must be distinct")
        return frozenset(codes)

    def elements(self, state: State) -> list[Element]:
        """The elements of a set, in order."""
        return [self.element(code) for code in sorted(state)]

    def given(self, state: State) -> list[Element]:
        """Likewise, spelled as sets are given to `state`."""
        return self.elements(state)

    def tensor(self, state: State) -> Tensor:
        """A set [N, F] as it was spelled in the tensors that the symbols were read from."""
        if self.widths is None:
            raise ValueError("these elements were read from words, which have no tensors")
        rows = [
            [number for pair in zip(element, self.widths, strict=True) for number in _spell(*pair)]
            for element in self.elements(state)
        ]
        return torch.tensor(rows, dtype=self.dtype).reshape(len(rows), sum(self.widths))

    def _rows(self, elements: Tensor) -> list[Element]:
        if self.widths is None:
            raise ValueError("the recording was of words; give a list of elements, no tensor")
        if elements.dim() != 2 or elements.shape[1] != sum(self.widths):
            raise ValueError(
                f"expected a set [elements, {sum(self.widths)}], got shape {tuple(elements.shape)}"
            )
        return list(zip(*(_read(block) for block in elements.split(self.widths, 1)), strict=True))


def symbols_of(elements: Iterable[Element], names: Sequence[str]) -> Symbols:
    """The symbols that occur in elements given as tuples of words or numbers."""
    columns = [set(column) for column in zip(*elements, strict=True)]
    values = tuple(ordered(column) for column in columns)
    words = any(isinstance(value, str) for column in columns for value in column)
    return Symbols(tuple(names), values, None if words else (1,) * len(values))


def symbols_in(
    elements: Tensor, features: Features | None, names: Sequence[str] | None
) -> tuple[Symbols, NDArray[np.int64]]:
    """The symbols that occur in elements [n, F], and the codes [n] of these.

    Each of ``features`` is one, such as a tile in one-hot form; without, each number is one.
    """
    widths = [1] * elements.shape[-1] if features is None else features.widths
    if elements.shape[-1] != sum(widths):
        raise ValueError(
            f"before and after: expected elements of {sum(widths)} numbers, as many as features "
            f"say, got {elements.shape[-1]}"
        )
    if not bool(elements.isfinite().all()):
        raise ValueError("before and after: expected finite numbers; mask elements that are none")
    if names is None:
        names = [f"feature{number}" for number in range(len(widths))]
    if len(names) != len(widths):
        raise ValueError(f"names: expected {len(widths)}, one a feature, got {len(names)}")
    values, digits = [], []
    for block in elements.split(widths, -1):
        rows, which = block.unique(dim=0, return_inverse=True)
        read = _read(rows)
        counted = ordered(read)
        place = torch.tensor([counted.index(value) for value in read], dtype=torch.int64)
        values.append(counted)
        digits.append(place[which].numpy())
    symbols = Symbols(tuple(names), tuple(values), tuple(widths), elements.dtype)
    return symbols, np.ravel_multi_index(tuple(digits), symbols.sizes).astype(np.int64)


def ordered(values: Iterable[Value]) -> tuple[Value, ...]:
    """Numbers before words."""
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))


def _read(rows: Tensor) -> list[Value]:
    """What rows [n, width] mean: the class where one number of several is 1 and no other is set."""
    found: list[Value] = []
    for row in rows.tolist():
        if len(row) == 1:
            found.append(int(row[0]) if row[0] == int(row[0]) else row[0])
        elif sorted(row) == [0.0] * (len(row) - 1) + [1.0]:
            found.append(row.index(1.0))
        else:
            raise ValueError(
                f"a feature of {len(row)} numbers is not one-hot: {row}; each of several binary "
                f"features is a Bernoulli(1) of its own"
            )
    return found


def _spell(value: Value, width: int) -> list[float]:
    assert isinstance(value, int | float)
    return [value] if width == 1 else [float(place == value) for place in range(width)]
