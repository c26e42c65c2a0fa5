"""An action with arguments, and what it is for one choice of them.

Legend: C features, V values of a feature, U = V1 x ... x VC codes of elements.

A slot is an argument; it holds a value of one feature, and slots of one feature hold different
values. A template is an element whose values may be slots: its digit for a feature with n slots is
0 to n - 1 for a slot, and n + v for value v itself. Given what is in the slots, every element has
one template: a value that is in a slot is that slot, all others are themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from setwise.planning.actions.symbols import State

Digits = tuple[int, ...]
Slot = tuple[int, int]  # the feature, and the number among the slots of this feature
Binding = tuple[int, ...]  # the value in each slot, feature after feature


@dataclass(frozen=True, eq=False)  # arrays are neither equal nor hashed
class Action:
    """A schema with values in its slots: elements that must be there, and others that may be."""

    schema: Schema
    binding: Binding
    removed: State
    added: State
    must: State
    may: NDArray[np.bool_]  # [U]; false at elements that forbid the action

    def applies(self, state: State) -> bool:
        """Whether it can be done."""
        return self.must <= state and bool(self.may[list(state)].all())

    def result(self, state: State) -> State:
        """What becomes of a set."""
        return (state - self.removed) | self.added


@dataclass(frozen=True)
class Schema:
    """What leaves and comes, with which arguments, and under which conditions.

    An action can be done if everything that was always there before it is there, and nothing that
    never was. Both are said of templates; and of each slot and each value in it once more, for
    templates with no other value than one of the same feature, so that a disk may be held by
    smaller ones alone; and of what must be there also for elements without slots, if the action
    never touches their other values. Any two values that were seen together in two slots may meet
    again.
    """

    name: str
    sizes: Digits  # values of each feature
    slots: Digits  # slots of each feature
    removed: tuple[Digits, ...]
    added: tuple[Digits, ...]
    seen: int  # how often
    ranges: tuple[frozenset[int], ...]  # of each slot, the values that were in it
    pairs: dict[tuple[int, int], frozenset[tuple[int, int]]]  # of two slots, the values in both
    must: frozenset[Digits]
    may: frozenset[Digits] | None  # None: all
    must_with: dict[tuple[int, int], frozenset[Digits]]  # of a slot and a value in it
    may_with: dict[tuple[int, int], frozenset[Digits] | None]

    @cached_property
    def places(self) -> tuple[Slot, ...]:
        """All slots, in the order of a binding."""
        return tuple((c, k) for c, count in enumerate(self.slots) for k in range(count))

    def bindings(self) -> Iterator[Binding]:
        """Every choice of arguments of which each two were seen together."""
        chosen: list[int] = []

        def complete() -> Iterator[Binding]:
            at = len(chosen)
            if at == len(self.places):
                yield tuple(chosen)
                return
            for value in sorted(self.ranges[at]):
                if all((other, value) in self.pairs[i, at] for i, other in enumerate(chosen)):
                    chosen.append(value)
                    yield from complete()
                    chosen.pop()

        return complete()

    def action(self, binding: Binding) -> Action:
        """The action with values in its slots."""
        may = self._may_table.copy()
        must = set(self.must)
        for key in enumerate(binding):
            may[self._forbidden_with[key]] = False
            must |= self.must_with[key]
        return Action(
            self,
            binding,
            self._codes(self._grounded(self.removed, binding)),
            self._codes(self._grounded(self.added, binding)),
            self._codes(self._grounded(must, binding)),
            may[np.ix_(*self.tables(binding))].reshape(-1),
        )

    def tables(self, binding: Binding) -> list[NDArray[np.int64]]:
        """Of each feature, what each value [V] is in a template."""
        tables = [
            np.arange(size) + count for size, count in zip(self.sizes, self.slots, strict=True)
        ]
        for (c, k), value in zip(self.places, binding, strict=True):
            tables[c][value] = k
        return tables

    def ground(self, template: Digits, binding: Binding) -> Digits | None:
        """The element that a template is; None if one of its values is in a slot."""
        found = []
        for c, (digit, count) in enumerate(zip(template, self.slots, strict=True)):
            start = sum(self.slots[:c])
            held = binding[start : start + count]
            if digit >= count and digit - count in held:
                return None
            found.append(held[digit] if digit < count else digit - count)
        return tuple(found)

    def related(self, at: int) -> list[Digits]:
        """Templates of slots but for one value, of the feature of the slot at this place."""
        c, _ = self.places[at]
        shape = [range(count) for count in self.slots]
        shape[c] = range(self.slots[c], self.slots[c] + self.sizes[c])
        return [
            tuple(map(int, t)) for t in np.stack(np.meshgrid(*shape), -1).reshape(-1, len(shape))
        ]

    def fits(self, binding: Binding) -> bool:
        """Whether each two of these arguments were seen together."""
        inside = all(value in r for value, r in zip(binding, self.ranges, strict=True))
        places = combinations(range(len(binding)), 2)
        return inside and all((binding[i], binding[j]) in self.pairs[i, j] for i, j in places)

    @cached_property
    def _forbidden_with(self) -> dict[tuple[int, int], tuple[NDArray[np.int64], ...]]:
        """Of a slot and a value in it, where the templates are that `may_with` does not allow."""
        related = [self.related(at) for at in range(len(self.places))]
        found = {}
        for (at, value), allowed in self.may_with.items():
            chosen = [t for t in related[at] if allowed is not None and t not in allowed]
            places = np.array(chosen, dtype=np.int64).reshape(len(chosen), len(self.slots))
            found[at, value] = tuple(places.T)
        return found

    @cached_property
    def _may_table(self) -> NDArray[np.bool_]:
        shape = [count + size for count, size in zip(self.slots, self.sizes, strict=True)]
        table = np.full(shape, self.may is None)
        if self.may:
            table[tuple(np.array(sorted(self.may)).T)] = True
        return table

    def _grounded(self, templates: Iterable[Digits], binding: Binding) -> list[Digits]:
        found = [self.ground(template, binding) for template in templates]
        return [element for element in found if element is not None]

    def _codes(self, elements: list[Digits]) -> State:
        return frozenset(int(np.ravel_multi_index(e, self.sizes)) for e in elements)
