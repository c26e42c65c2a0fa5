"""A model carried over to values that were never seen: a larger board, more tiles.

What is new is taken to behave as most of what is known, under three conditions that are checked:

- a relation between two arguments of one feature is either none but that they differ, or depends on
  by how much they differ alone, as that of neighbours does; it then holds for new values as well;
- arguments of different features have nothing to do with each other;
- what may be beside an action, and what may not, does not depend on which of the known values that
  are alike it is.

This is more than what was seen can prove, which is why it is done when asked for and never else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from setwise.planning.actions.exclusions import Exclusions
from setwise.planning.actions.schema import Digits, Schema
from setwise.planning.actions.statics import step
from setwise.planning.actions.symbols import State, Symbols, Value

if TYPE_CHECKING:
    from setwise.planning.actions.model import ActionModel

Pair = tuple[int, int]


def carry(model: ActionModel, values: Mapping[str, Sequence[Value]]) -> ActionModel:
    """See `ActionModel.carried`."""
    larger = _larger(model.symbols, values)
    known = [
        {larger.values[c].index(value): old for old, value in enumerate(column)}
        for c, column in enumerate(model.symbols.values)
    ]  # of each feature, the old number of each value that has one
    alike = _alike(model)
    schemas = tuple(
        _Carried(s, model.symbols, larger, known, alike).schema() for s in model.schemas
    )
    new = [{old: number for number, old in column.items()} for column in known]

    def codes(state: State) -> State:
        return frozenset(larger.code(model.symbols.element(code)) for code in state)

    once = {(c, new[c][v]) for c, v in model.exclusions.once}
    for c, members in enumerate(alike):
        if all((c, v) in model.exclusions.once for v in members):
            once |= {(c, v) for v in range(larger.sizes[c]) if v not in known[c]}
    always = {
        (key, tuple(new[c][v] for c, v in zip(key, held, strict=True)))
        for key, held in model.exclusions.always
    }
    exclusions = Exclusions(model.exclusions.keys, frozenset(once), frozenset(always))
    return replace(
        model,
        symbols=larger,
        schemas=schemas,
        exclusions=exclusions,
        fixed=codes(model.fixed),
        seen=codes(model.seen),
    )


class _Carried:
    """One schema among more values."""

    def __init__(
        self,
        schema: Schema,
        symbols: Symbols,
        larger: Symbols,
        known: list[dict[int, int]],
        alike: list[frozenset[int]],
    ) -> None:
        self.old, self.symbols, self.larger = schema, symbols, larger
        self.known, self.alike = known, alike
        self.features = [c for c, _ in schema.places]
        self.of_all: dict[tuple[Digits, int | None], bool] = {}

    def schema(self) -> Schema:
        old, sizes = self.old, self.larger.sizes
        ranges = tuple(frozenset(self._range(at)) for at in range(len(self.features)))
        larger = replace(old, sizes=sizes, ranges=ranges, pairs={})
        new = [{o: n for n, o in column.items()} for column in self.known]
        slots = old.slots

        def moved(template: Digits) -> Digits:
            return tuple(
                d if d < slots[c] else slots[c] + new[c][d - slots[c]]
                for c, d in enumerate(template)
            )

        must_with: dict[Pair, frozenset[Digits]] = {}
        may_with: dict[Pair, frozenset[Digits] | None] = {}
        for at, chosen in enumerate(ranges):
            c = self.features[at]
            for value in chosen:
                here = self.known[c].get(value)
                if here is None and any(old.must_with[at, v] for v in self.alike[c]):
                    raise ValueError(
                        f"{old.name}: what it needs depends on its {self.symbols.names[c]}, so "
                        f"that it is not known for {self.larger.values[c][value]}"
                    )
                needed = old.must_with[at, here] if here is not None else frozenset()
                must_with[at, value] = frozenset(map(moved, needed))
                may_with[at, value] = (
                    None
                    if old.may is None
                    else frozenset(t for t in larger.related(at) if self._may(t, (at, value)))
                )
        every = product(*(range(n + size) for n, size in zip(slots, sizes, strict=True)))
        return replace(
            larger,
            pairs={places: self._pairs(places, ranges) for places in old.pairs},
            must=frozenset(map(moved, old.must)),
            may=None if old.may is None else frozenset(t for t in every if self._may(t)),
            must_with=must_with,
            may_with=may_with,
        )

    def _range(self, at: int) -> Iterator[int]:
        c = self.features[at]
        for value in range(self.larger.sizes[c]):
            old = self.known[c].get(value)
            if old in self.old.ranges[at] or (old is None and self.alike[c] <= self.old.ranges[at]):
                yield value

    def _pairs(self, places: Pair, ranges: Sequence[frozenset[int]]) -> frozenset[Pair]:
        """What two slots may hold, among more values."""
        (i, j), seen = places, self.old.pairs[places]
        c, d = self.features[i], self.features[j]
        possible = [
            p for p in product(self.old.ranges[i], self.old.ranges[j]) if c != d or p[0] != p[1]
        ]
        larger = [p for p in product(ranges[i], ranges[j]) if c != d or p[0] != p[1]]
        if len(seen) == len(possible):
            return frozenset(larger)
        names = self.symbols.names
        if c == d:
            steps = {step(self.symbols.values[c], pair) for pair in seen}
            same = {pair for pair in possible if step(self.symbols.values[c], pair) in steps}
            if None not in steps and same == seen:
                return frozenset(p for p in larger if step(self.larger.values[c], p) in steps)
        raise ValueError(
            f"{self.old.name}: how its {names[c]} and its {names[d]} belong together is known of "
            f"{len(seen)} pairs by name and by no rule, so that it is not known of new values"
        )

    def _may(self, template: Digits, held: Pair | None = None) -> bool:
        """Whether a template may be there, perhaps with a value in a slot.

        Where a value is new: if it may with all old ones. So, too, where there was no room for
        any other than these: of three columns a step between two neighbours takes the middle one.
        """
        digits = enumerate(zip(template, self.old.slots, strict=True))
        values = [(c, digit - count) for c, (digit, count) in digits if digit >= count]
        if held is not None:
            values.append((self.features[held[0]], held[1]))
        if all(value in self.known[c] for c, value in values):
            found = self._known_of(template, held, every=False)
            if found is not None:
                return found
        # Of which values is no matter here, only where they are.
        own = tuple(d if d < n else n for d, n in zip(template, self.old.slots, strict=True))
        key = own, None if held is None else held[0]
        if key not in self.of_all:
            self.of_all[key] = bool(self._known_of(template, held, every=True))
        return self.of_all[key]

    def _known_of(self, template: Digits, held: Pair | None, *, every: bool) -> bool | None:
        """The same of these or of all old values; None if none of them could be there."""

        def old(c: int, value: int) -> Iterable[int]:
            return self.alike[c] if every else [self.known[c][value]]

        ways = [
            [digit] if digit < count else [count + v for v in old(c, digit - count)]
            for c, (digit, count) in enumerate(zip(template, self.old.slots, strict=True))
        ]
        keys: list[Pair | None] = [None]
        if held is not None:
            keys = [(held[0], value) for value in old(self.features[held[0]], held[1])]
        possible = [(w, key) for w in product(*ways) for key in keys if self._could_be(w, key)]
        if not possible:
            return None
        allowed = {key: self.old.may if key is None else self.old.may_with[key] for key in keys}
        return all((may := allowed[key]) is None or way in may for way, key in possible)

    def _could_be(self, template: Digits, held: Pair | None) -> bool:
        """Whether some binding leaves the values of a template free."""
        left = self._all if held is None else self._holding.get(held, 0)
        for c, (digit, count) in enumerate(zip(template, self.old.slots, strict=True)):
            if digit >= count:
                for at, feature in enumerate(self.features):
                    if feature == c:
                        left &= ~self._holding.get((at, digit - count), 0)
        return left != 0

    @cached_property
    def _holding(self) -> dict[Pair, int]:
        """The bindings that have a value in a slot, as the bits of a number."""
        found: dict[Pair, int] = {}
        for number, binding in enumerate(self.old.bindings()):
            for pair in enumerate(binding):
                found[pair] = found.get(pair, 0) | 1 << number
        return found

    @cached_property
    def _all(self) -> int:
        return (1 << sum(1 for _ in self.old.bindings())) - 1


def _larger(symbols: Symbols, values: Mapping[str, Sequence[Value]]) -> Symbols:
    if unknown := set(values) - set(symbols.names):
        raise ValueError(
            f"values: unknown feature {sorted(unknown)[0]!r}; known: {', '.join(symbols.names)}"
        )
    columns = []
    for name, old in zip(symbols.names, symbols.values, strict=True):
        new = tuple(values.get(name, old))
        if not set(old) <= set(new):
            raise ValueError(f"values: {name}: expected all known values among the new ones")
        columns.append(new)
    widths = symbols.widths
    if widths is not None:  # one-hot classes are as many as they have to be
        widths = tuple(
            width if width == 1 else max(width, *(int(v) + 1 for v in column))
            for width, column in zip(widths, columns, strict=True)
        )
    return replace(symbols, values=tuple(columns), widths=widths)


def _alike(model: ActionModel) -> list[frozenset[int]]:
    """Of each feature, the largest set of values that no slot tells apart."""
    found = []
    for c, size in enumerate(model.symbols.sizes):
        ranges = [
            chosen
            for schema in model.schemas
            for (feature, _), chosen in zip(schema.places, schema.ranges, strict=True)
            if feature == c
        ]
        classes: dict[tuple[bool, ...], list[int]] = {}
        for value in range(size):
            classes.setdefault(tuple(value in chosen for chosen in ranges), []).append(value)
        largest = max(classes.values(), key=len)
        found.append(frozenset(largest))
    return found
