"""Conditions of a schema in words that hold for all of its bindings, or for as many as they can.

Legend: n bindings, U codes of elements.

A binding has conditions of its own: elements that must be there, and elements that must not. A text
is an element of slots and values; said of all bindings at once, it is a condition of each. Where no
texts say the conditions of all, bindings are parted by the value in one slot, until some do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from setwise.planning.actions.exclusions import Exclusions
from setwise.planning.actions.schema import Binding, Digits, Schema
from setwise.planning.actions.symbols import State

Text = tuple[tuple[str, int], ...]  # of each feature, ("slot", place) or ("value", number)


@dataclass(frozen=True)
class Group:
    """Bindings of a schema with the same conditions in words."""

    schema: Schema
    bindings: tuple[Binding, ...]
    positive: tuple[Text, ...]
    negative: tuple[Text, ...]

    @property
    def fixed(self) -> dict[int, int]:
        """Slots that hold the same value in all bindings."""
        first = self.bindings[0]
        same = [at for at, v in enumerate(first) if all(b[at] == v for b in self.bindings)]
        return {at: first[at] for at in same}

    @property
    def free(self) -> list[int]:
        """The other slots: the parameters."""
        fixed = self.fixed
        return [at for at in range(len(self.schema.places)) if at not in fixed]

    def text_of(self, template: Digits) -> Text:
        """A template of the schema as a text."""
        slots = self.schema.slots
        return tuple(
            ("slot", sum(slots[:c]) + digit) if digit < slots[c] else ("value", digit - slots[c])
            for c, digit in enumerate(template)
        )


def grouped(schema: Schema, exclusions: Exclusions, fixed: State, possible: State) -> list[Group]:
    """All bindings of a schema, in groups whose conditions can be said in words.

    ``fixed`` are elements of every state; those that are not ``possible`` are in none.
    """
    bindings = list(schema.bindings())
    follows = _Follows(schema.sizes, exclusions, fixed, possible)
    return _Conditions(schema, bindings, follows).groups(np.arange(len(bindings)))


class _Conditions:
    def __init__(self, schema: Schema, bindings: list[Binding], follows: _Follows) -> None:
        self.schema, self.bindings = schema, bindings
        self.values = np.array(bindings, dtype=np.int64).reshape(len(bindings), len(schema.places))
        count = int(np.prod(schema.sizes))
        self.must = np.zeros((len(bindings), count), dtype=bool)
        self.must_not = np.zeros_like(self.must)
        # Two ways to say no more than is needed: all that must be there, and of what must not only
        # that which does not follow; or of both, but for what is removed, the other way round.
        less = self.must, np.zeros_like(self.must)
        other = np.zeros_like(self.must), np.zeros_like(self.must)
        for row, binding in enumerate(bindings):
            action = schema.action(binding)
            self.must[row, list(action.must)] = True
            self.must_not[row] = ~action.may
            less[1][row] = ~action.may & ~follows.excluded_by(action.must)
            kept = {
                code
                for code in action.must
                if code in action.removed or not follows.is_left(code, ~action.may)
            }
            other[0][row, list(kept)] = True
            other[1][row] = ~action.may & ~follows.excluded_by(kept)
        self.needed = less, other

    def groups(self, rows: NDArray[np.int64]) -> list[Group]:
        """The rows as one group, or parted by a slot."""
        said = self._said(rows)
        if said is not None:
            chosen = tuple(self.bindings[row] for row in rows)
            return [Group(self.schema, chosen, *said)]
        return [group for part in self._parted(rows) for group in self.groups(part)]

    def _parted(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The rows by the value in one slot: in few parts, all of which can be said if possible."""
        partings = []
        for at in range(self.values.shape[1]):
            held = self.values[rows, at]
            values = np.unique(held)
            if len(values) > 1:
                partings.append([rows[held == value] for value in values])
        partings.sort(key=len)
        return next((p for p in partings if None not in map(self._said, p)), partings[0])

    def _said(self, rows: NDArray[np.int64]) -> tuple[tuple[Text, ...], tuple[Text, ...]] | None:
        """What must and what must not be there, in texts for all rows, if there are such."""
        for there, not_there in self.needed:
            positive = self._texts(rows, self.must, there)
            negative = self._texts(rows, self.must_not, not_there)
            if positive is not None and negative is not None:
                return tuple(positive), tuple(negative)
        return None

    def _texts(
        self, rows: NDArray[np.int64], true: NDArray[np.bool_], needed: NDArray[np.bool_]
    ) -> list[Text] | None:
        """Texts that are true of all rows and say all that is needed; None if there are none."""
        left = needed[rows]
        chosen: list[Text] = []
        order = np.arange(len(rows))
        while left.any():
            row, code = np.argwhere(left)[0]
            for text in self._ways_to_say(int(code), self.bindings[rows[row]]):
                codes = self._codes(text, rows)
                if true[rows, codes].all():
                    chosen.append(text)
                    left[order, codes] = False
                    break
            else:
                return None
        return chosen

    def _ways_to_say(self, code: int, binding: Binding) -> Iterator[Text]:
        """An element as texts, with as many slots as possible first."""
        digits = np.unravel_index(code, self.schema.sizes)
        ways: list[list[tuple[str, int]]] = []
        for c, digit in enumerate(digits):
            places = enumerate(zip(self.schema.places, binding, strict=True))
            slots = [("slot", at) for at, ((f, _), value) in places if f == c and value == digit]
            ways.append([*slots, ("value", int(digit))])
        return iter(
            sorted(product(*ways), key=lambda text: sum(kind == "value" for kind, _ in text))
        )

    def _codes(self, text: Text, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """What a text says of each row."""
        digits = [
            self.values[rows, number] if kind == "slot" else np.full(len(rows), number)
            for kind, number in text
        ]
        return np.ravel_multi_index(digits, self.schema.sizes).astype(np.int64)


class _Follows:
    """What follows from what is there, or is not, in every state that was seen."""

    def __init__(
        self, sizes: Sequence[int], exclusions: Exclusions, fixed: State, possible: State
    ) -> None:
        self.digits = np.indices(sizes).reshape(len(sizes), -1)
        self.exclusions = exclusions
        self.known: dict[int, NDArray[np.bool_]] = {}
        never = np.ones(self.digits.shape[1], dtype=bool)
        never[list(possible)] = False
        self.never = np.logical_or.reduce([never, *map(self._excluded_by, fixed)])

    def excluded_by(self, codes: Iterable[int]) -> NDArray[np.bool_]:
        """The elements [U] that cannot be there beside these."""
        return np.logical_or.reduce([self.never, *map(self._excluded_by, codes)])

    def is_left(self, code: int, not_there: NDArray[np.bool_]) -> bool:
        """Whether an element has to be there, since there is one of its key and no other can be."""
        same = self.digits == self.digits[:, [code]]
        for key, values in self.exclusions.always:
            if tuple(self.digits[list(key), code]) == values:
                others = same[list(key)].all(0)
                others[code] = False
                if (not_there | self.never)[others].all():
                    return True
        return False

    def _excluded_by(self, code: int) -> NDArray[np.bool_]:
        if code not in self.known:
            same = self.digits == self.digits[:, [code]]
            found = np.zeros(same.shape[1], dtype=bool)
            for key in self.exclusions.keys:
                found |= same[list(key)].all(0)
            for c, value in self.exclusions.once:
                if self.digits[c, code] == value:
                    found |= same[c]
            found[code] = False
            self.known[code] = found
        return self.known[code]
