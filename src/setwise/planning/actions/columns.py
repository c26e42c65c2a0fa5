"""Elements of files some of whose values are measured: columns as features, and the way back.

Legend: S sets, N elements of the largest of them, F numbers of an element, n elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from setwise.features import Angle, Bernoulli, Categorical, Family, Features, Gaussian
from setwise.planning.actions.measured import MeasuredStates, MeasuredSymbols
from setwise.planning.actions.recording import Recording
from setwise.planning.actions.symbols import (
    Element,
    State,
    UnknownSymbolError,
    Value,
    ordered,
)

_MOST_WORDS = 1000  # different values of a column that is not measured


@dataclass(frozen=True)
class Columns:
    """The features that columns are, several of them one where they are measured together."""

    columns: tuple[str, ...]
    features: Features
    places: tuple[tuple[int, ...], ...]  # the columns of each feature
    words: dict[str, tuple[Value, ...]]  # by features that are not measured: their values

    @classmethod
    def of(
        cls,
        elements: Iterable[Element],
        columns: Sequence[str],
        measured: Sequence[str],
        angles: Sequence[str],
    ) -> Columns:
        """Those of elements; ``measured`` are named as in `read_recording`."""
        kinds = {one: tuple(one.split(",")) for one in measured} | {one: (one,) for one in angles}
        said = [column for group in kinds.values() for column in group]
        for column in said:
            if column not in columns:
                known = ", ".join(columns)
                raise ValueError(f"no feature is called {column!r:.60}; there are {known}")
        if len(set(said)) < len(said) or set(measured) & set(angles):
            raise ValueError(f"expected every measured feature once, got {', '.join(said)}")
        owner = {group[0]: group for group in kinds.values()}
        families: list[Family] = []
        places: list[tuple[int, ...]] = []
        words = {}
        values = list(zip(*elements, strict=True))
        for place, column in enumerate(columns):
            if column in owner:
                group = owner[column]
                places.append(tuple(columns.index(one) for one in group))
                families.append(Angle(1) if column in angles else Gaussian(len(group)))
            elif column not in said:
                found = ordered(set(values[place]))
                if len(found) > _MOST_WORDS:
                    raise ValueError(
                        f"{column}: {len(found)} different values, more than {_MOST_WORDS}; if it "
                        f"is measured, it has to be said"
                    )
                words[column] = found
                places.append((place,))
                families.append(Categorical(len(found)) if len(found) > 1 else Bernoulli(1))
        made = cls(tuple(columns), Features(*families), tuple(places), words)
        if len(set(made.names)) < len(places):
            raise ValueError(
                f"features that are one are named by all of theirs, but then two are called the "
                f"same: {', '.join(made.names)}; rename one of them"
            )
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """Of the features."""
        return tuple("-".join(self.columns[one] for one in group) for group in self.places)

    def tensor(self, sets: Sequence[Sequence[Element]]) -> tuple[Tensor, Tensor]:
        """Sets as numbers [S, N, F], and which of them are there, bool [S, N]."""
        sizes = torch.tensor([len(one) for one in sets])
        valid = torch.arange(int(sizes.max())) < sizes.unsqueeze(-1)
        rows = torch.zeros(*valid.shape, self.features.width, dtype=torch.float64)
        rows[valid] = self._rows([element for one in sets for element in one])
        return rows, valid

    def elements(self, rows: Tensor) -> list[Element]:
        """The elements that rows [n, F] spell."""
        found: list[list[Value]] = [[0] * len(self.columns) for _ in rows]
        blocks = zip(self.names, self.places, self.features.split(rows), strict=True)
        for name, places, block in blocks:
            words = self.words.get(name)
            for element, numbers in zip(found, block, strict=True):
                read = numbers.tolist() if words is None else [words[int(numbers.argmax())]]
                for place, value in zip(places, read, strict=True):
                    element[place] = value
        return [tuple(element) for element in found]

    def _rows(self, elements: Sequence[Element]) -> Tensor:
        """[n, F]; an error names the element that cannot be read."""
        for element in elements:
            if len(element) != len(self.columns):
                raise ValueError(
                    f"{element}: expected {len(self.columns)} values, {', '.join(self.columns)}, "
                    f"got {len(element)}"
                )
        blocks = []
        for name, places, family in zip(self.names, self.places, self.features.blocks, strict=True):
            if name in self.words:
                number = {word: index for index, word in enumerate(self.words[name])}
                for element in elements:
                    if element[places[0]] not in number:
                        seen = ", ".join(map(str, self.words[name][:20]))
                        raise UnknownSymbolError(
                            f"{element}: its {name} was never seen; seen were {seen}"
                        )
                which = [number[element[places[0]]] for element in elements]
                block = torch.eye(family.width, dtype=torch.float64)[which]
            else:
                for element in elements:
                    for place in places:
                        if isinstance(element[place], str):
                            raise ValueError(
                                f"{element}: {self.columns[place]} is measured: expected a number, "
                                f"got {element[place]!r:.60}"
                            )
                numbers = [[cast(float, e[place]) for place in places] for e in elements]
                block = torch.tensor(numbers, dtype=torch.float64)
            blocks.append(block.reshape(len(elements), family.width))
        return torch.cat(blocks, dim=-1)


@dataclass(frozen=True)
class ColumnStates(MeasuredStates):
    """Symbols whose sets are given as they stand in the file."""

    columns: Columns = field(kw_only=True, compare=False, repr=False)

    def state(self, elements: Iterable[Element] | Tensor) -> State:
        """The elements of a set with what was measured of them."""
        if not isinstance(elements, Tensor):
            elements = self.columns.tensor([list(elements)])[0].squeeze(0)
        return super().state(elements)

    def given(self, state: State) -> list[Element]:
        """The elements of a set with what is typical of them."""
        return self.columns.elements(self.tensor(state))


def measured_recording(
    before: Sequence[Sequence[Element]],
    after: Sequence[Sequence[Element]],
    columns: Columns,
    actions: Sequence[str] | None,
) -> Recording:
    """Learn symbols from steps, and call their elements by them."""
    (one, one_valid), (other, other_valid) = columns.tensor(before), columns.tensor(after)
    symbols = MeasuredSymbols.fit(
        one,
        other,
        columns.features,
        names=columns.names,
        words=columns.words,
        before_valid=one_valid,
        after_valid=other_valid,
    )
    found = symbols.recording(
        one, other, before_valid=one_valid, after_valid=other_valid, actions=actions
    )
    states = ColumnStates(symbols.names, found.symbols.values, reader=symbols, columns=columns)
    return Recording(states, found.before, found.after, found.actions)
