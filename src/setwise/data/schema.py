"""What the columns of rows and of elements are: inferred from values, and the way back to them.

Legend: n values, F numbers that encode one of them.

A `Column` holds one kind of value: text is a class, True and False are a boolean, a number or a
list of numbers of one length is a number. A whole number is a class where few different ones occur
in elements, and else a number that is rounded on the way back. Numbers are brought to a mean of 0
and a spread of 1; angles are numbers as well, for nothing tells that they are angles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from setwise.features import Bernoulli, Categorical, Family, Features, Gaussian

Kind = Literal["class", "boolean", "number", "whole"]
# Of elements: at most so many different whole numbers are classes; and so many texts are.
FEW, MOST_CLASSES, MOST_WIDTH = 20, 10_000, 2**20
# The deviation of outputs that a loss reckons with, where numbers have a spread of 1.
SCALE = 0.25
_LARGEST = 1e100  # number, whose square is one, too
VALUE = "value"  # the column of elements that are no objects


@dataclass(frozen=True)
class Column:
    """One column: its kind, and what is needed to encode a value of it and to decode it again."""

    name: str
    kind: Kind
    classes: tuple[str | int, ...] = ()
    # How many numbers: those of a list, or the one that a value is.
    width: int = 1
    listed: bool = False
    centre: float = 0.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        """They may come from a file that somebody else has written."""
        object.__setattr__(self, "classes", tuple(self.classes))
        known = all(isinstance(one, str | int) for one in self.classes)
        numbers = all(isinstance(n, int | float) for n in (self.centre, self.spread))
        if (
            not isinstance(self.name, str)
            or self.kind not in get_args(Kind)
            or not known
            or bool(self.classes) != (self.kind == "class")
            or len(self.classes) > MOST_CLASSES
            or not isinstance(self.width, int)
            or not 1 <= self.width <= MOST_WIDTH
            or not isinstance(self.listed, bool)
            or not numbers
            or not (math.isfinite(self.centre) and 0 < self.spread < math.inf)
        ):
            raise ValueError(f"column {self.name!r:.60}: not one that was inferred")

    @property
    def family(self) -> Family:
        """As features of an element; what is always the same is a bit that is set."""
        if self.kind in ("number", "whole"):
            return Gaussian(self.width, scale=SCALE)
        return Categorical(len(self.classes)) if len(self.classes) > 1 else Bernoulli(1)

    def encode(self, values: Sequence[Any]) -> Tensor:
        """[n, F] of values, each of which must be of the kind."""
        if not values:
            return torch.zeros(0, self.family.width)
        if self.kind == "class":
            place = {one: index for index, one in enumerate(self.classes)}
            for value in values:
                if type(value) not in (str, int) or value not in place:
                    known = ", ".join(map(str, self.classes[:10]))
                    raise ValueError(f"{self.name}: unknown {value!r:.60}; known: {known}")
            which = torch.tensor([place[value] for value in values])
            one_hot = torch.nn.functional.one_hot(which, len(self.classes))
            return one_hot.float()
        if self.kind == "boolean":
            for value in values:
                if not isinstance(value, bool):
                    raise ValueError(f"{self.name}: expected true or false, got {value!r:.60}")
            return torch.tensor(values, dtype=torch.float32).unsqueeze(-1)
        for value in values:
            if _numbers(value) != (self.width, self.listed):
                what = f"a list of {self.width} finite numbers" if self.listed else "a finite one"
                raise ValueError(f"{self.name}: expected {what}, got {value!r:.60}")
        # In doubles: what is far from 0 keeps its digits until the centre is subtracted.
        numbers = _flat(values).reshape(len(values), self.width)
        return ((numbers - self.centre) / self.spread).float()

    def decode(self, encoded: Tensor) -> list[Any]:
        """The values of [n, F], in the space of the targets."""
        if self.kind == "class":
            return [self.classes[place] for place in encoded.argmax(dim=-1).tolist()]
        if self.kind == "boolean":
            return (encoded.squeeze(-1) > 0.5).tolist()
        numbers = encoded.double() * self.spread + self.centre
        if self.kind == "whole":
            numbers = numbers.round()
        found = numbers.tolist() if self.listed else numbers.squeeze(-1).tolist()
        if self.kind == "number":
            return found
        return [[int(one) for one in value] if self.listed else int(value) for value in found]

    def __str__(self) -> str:
        if self.kind == "class":
            shown = ", ".join(map(str, self.classes[:6]))
            dots = ", ..." if len(self.classes) > 6 else ""
            return f"{self.name}: {len(self.classes)} classes ({shown}{dots})"
        if self.kind == "boolean":
            return f"{self.name}: true or false"
        many = f"{self.width} numbers" if self.listed else "a number"
        whole = ", rounded" if self.kind == "whole" else ""
        return f"{self.name}: {many}, around {self.centre:.4g} +- {self.spread:.4g}{whole}"


@dataclass(frozen=True)
class Schema:
    """The columns of objects, or the one column of elements that are values themselves."""

    columns: tuple[Column, ...]
    bare: bool = False

    @classmethod
    def infer(cls, what: str, elements: Sequence[Any], *, few_are_classes: bool = True) -> Schema:
        """What elements are: all objects with the same names, or all of them values.

        ``what`` names them where they are no such thing.

        >>> print(Schema.infer("objects", [{"kind": "disc", "x": 0.5}, {"kind": "box", "x": 1.5}]))
        kind: 2 classes (box, disc)
        x: a number, around 1 +- 0.5
        """
        if not elements:
            raise ValueError(f"{what}: every set is empty; nothing tells what an element is")
        if not isinstance(elements[0], dict):
            return cls((_inferred(VALUE, elements, few_are_classes),), bare=True)
        names = list(elements[0])
        if not names:
            raise ValueError(f"{what}: elements have no columns")
        for element in elements:
            if not isinstance(element, dict) or element.keys() != set(names):
                raise _unlike(what, names, element)
        columns = (
            _inferred(name, [one[name] for one in elements], few_are_classes) for name in names
        )
        return cls(tuple(columns))

    @classmethod
    def read(cls, saved: Any) -> Schema:
        """What JSON has of a schema."""
        try:
            columns = tuple(Column(**column) for column in saved["columns"])
            return cls(columns, bool(saved["bare"]))
        except (TypeError, KeyError) as error:
            raise ValueError(f"not the columns of data: {saved!r:.60}") from error

    @property
    def width(self) -> int:
        return sum(column.family.width for column in self.columns)

    @property
    def features(self) -> Features:
        """Of an element: one block a column."""
        return Features(*(column.family for column in self.columns))

    def encode(self, elements: Sequence[Any]) -> Tensor:
        """[n, F], in the space of the targets."""
        if self.bare:
            return self.columns[0].encode(elements)
        names = [column.name for column in self.columns]
        for element in elements:  # which may have more
            if not isinstance(element, dict) or not element.keys() >= set(names):
                raise _unlike("element", names, element)
        parts = [c.encode([one[c.name] for one in elements]) for c in self.columns]
        return torch.cat(parts, dim=-1)

    def decode(self, encoded: Tensor) -> list[Any]:
        """Elements that `encode` would turn into [n, F]."""
        parts = encoded.split([column.family.width for column in self.columns], dim=-1)
        values = [c.decode(part) for c, part in zip(self.columns, parts, strict=True)]
        if self.bare:
            return values[0]
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]

    def __str__(self) -> str:
        return "\n".join(map(str, self.columns))


def _unlike(what: str, names: Sequence[str], element: Any) -> ValueError:
    return ValueError(f"{what}: expected objects with {', '.join(names)}, got {element!r:.80}")


def _inferred(name: str, values: Sequence[Any], few_are_classes: bool) -> Column:
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return Column(name, "boolean")
    if kinds == {str} or (kinds == {int} and few_are_classes and len(set(values)) <= FEW):
        if len(classes := sorted(set(values))) > MOST_CLASSES:
            raise ValueError(f"{name}: {len(classes)} different texts are too many for classes")
        return Column(name, "class", tuple(classes))
    forms = {_numbers(value) for value in values}
    if len(forms) != 1 or None in forms:
        odd = next((v for v in values if _numbers(v) is None or type(v) is not type(values[0])), "")
        raise ValueError(
            f"{name}: expected texts, or true and false, or finite numbers, or lists of them of "
            f"one length, the same in every row; got {values[0]!r:.60} and {odd!r:.60}"
        )
    ((width, listed),) = (form for form in forms if form is not None)
    numbers = _flat(values)
    spread = float(numbers.std(correction=0))
    kind: Kind = "whole" if _all_whole(values) else "number"
    centre = float(numbers.mean())
    return Column(name, kind, (), width, listed, centre, spread if spread > 0 else 1.0)


def _flat(values: Sequence[Any]) -> Tensor:
    """All numbers of values, in doubles; PyTorch takes no whole ones of more than 64 bits."""
    return torch.tensor([float(one) for one in _each(values)], dtype=torch.float64)


def _all_whole(values: Sequence[Any]) -> bool:
    return all(isinstance(one, int) for one in _each(values))


def _each(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list) else [value]


def _numbers(value: Any) -> tuple[int, bool] | None:
    """How many numbers a value is, and whether it is a list; None where it is something else."""
    if isinstance(value, list):
        forms = {_numbers(one) for one in value}
        return (len(value), True) if forms == {(1, False)} else None
    finite = type(value) in (int, float) and abs(value) < _LARGEST
    return (1, False) if finite else None
