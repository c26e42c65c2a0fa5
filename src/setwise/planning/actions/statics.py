"""What never changes: types of values that behave alike, and relations between arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from setwise.planning.actions.conditions import Group
from setwise.planning.actions.names import different_names, feature_names
from setwise.planning.actions.symbols import Symbols, Value

Pairs = frozenset[tuple[int, int]]


class Statics:
    """The types and relations that the parameters of all groups need.

    Values of a feature are of one type if no action tells them apart, by a parameter that takes the
    one and not the other.
    """

    def __init__(self, symbols: Symbols, groups: Sequence[Group]) -> None:
        self.symbols = symbols
        self.names = feature_names(symbols)
        self.kinds: list[tuple[int, str, tuple[int, ...]]] = []  # feature, name, values
        self._relations: dict[tuple[int, ...], dict[frozenset[tuple[int, ...]], str]] = {}
        ranges = [
            (group.schema.places[at][0], _range(group, at))
            for group in groups
            for at in range(len(group.schema.places))
        ]
        for c, size in enumerate(symbols.sizes):
            told = [chosen for feature, chosen in ranges if feature == c]
            classes: dict[tuple[bool, ...], list[int]] = {}
            for value in range(size):
                classes.setdefault(tuple(value in chosen for chosen in told), []).append(value)
            if len(classes) == 1:
                self.kinds.append((c, self.names[c], tuple(range(size))))
                continue
            taken = [*self.names, *(name for _, name, _ in self.kinds)]
            given = [self._kind_name(c, members) for members in classes.values()]
            names = different_names(given, taken=["object", *taken])
            for name, members in zip(names, classes.values(), strict=True):
                self.kinds.append((c, name, tuple(members)))
        for group in groups:  # so that all are known before any is written
            self.conditions(group, dict.fromkeys(group.free, ""))

    def types(self) -> list[str]:
        """Of each feature, the types that its values have."""
        lines = []
        for c, feature in enumerate(self.names):
            below = [name for number, name, _ in self.kinds if number == c and name != feature]
            lines.append(feature)
            if below:
                lines.append(f"{' '.join(below)} - {feature}")
        plain = [line for line in lines if " - " not in line]
        return [" ".join(plain) + " - object", *(line for line in lines if " - " in line)]

    def kind_of(self, group: Group, at: int) -> str:
        """The type of a parameter: that of its values, or of all of the feature."""
        c = group.schema.places[at][0]
        chosen = tuple(sorted(_range(group, at)))
        names = [name for number, name, members in self.kinds if (number, members) == (c, chosen)]
        return names[0] if names else self.names[c]

    def conditions(self, group: Group, parameters: dict[int, str]) -> list[str]:
        """What the parameters of a group have to fulfil whatever the state is."""
        found = []
        places = group.schema.places
        for at in group.free:
            c, chosen = places[at][0], _range(group, at)
            if len(chosen) < self.symbols.sizes[c] and self.kind_of(group, at) == self.names[c]:
                name = self._relation((c,), frozenset((v,) for v in chosen))
                found.append(f"({name} {parameters[at]})")
        for i, j in combinations(group.free, 2):
            c, d = places[i][0], places[j][0]
            pairs = frozenset((b[i], b[j]) for b in group.bindings)
            every = {(v, w) for v in _range(group, i) for w in _range(group, j)}
            possible = {(v, w) for v, w in every if c != d or v != w}
            if pairs < possible:
                name = self._relation((c, d), pairs)
                found.append(f"({name} {parameters[i]} {parameters[j]})")
            elif possible < every:
                found.append(f"(not (= {parameters[i]} {parameters[j]}))")
        return found

    def predicates(self) -> list[str]:
        """The declarations of the relations."""
        lines = []
        for features, relations in self._relations.items():
            typed = " ".join(f"?a{k} - {self.names[c]}" for k, c in enumerate(features))
            lines += [f"({name} {typed})" for name in relations.values()]
        return lines

    def facts(self, objects: dict[tuple[int, int], str]) -> list[str]:
        """What is true of the relations."""
        return [
            f"({name} {' '.join(objects[c, v] for c, v in zip(features, values, strict=True))})"
            for features, relations in self._relations.items()
            for chosen, name in relations.items()
            for values in sorted(chosen)
        ]

    def _relation(self, features: tuple[int, ...], values: frozenset[tuple[int, ...]]) -> str:
        """The name of a relation; one with the same members is the same."""
        known = self._relations.setdefault(features, {})
        if values not in known:
            names = [self.names[c] for c in dict.fromkeys(features)]
            name = f"{'-'.join(names)}-{'pair' if len(features) == 2 else 'set'}"
            if len(features) == 2 and features[0] == features[1]:
                steps = {step(self.symbols.values[features[0]], pair) for pair in values}
                name = f"next-{names[0]}" if steps <= {1, -1} else name
            taken = {one for relations in self._relations.values() for one in relations.values()}
            number = 2
            known[values] = name
            while known[values] in taken:
                known[values] = f"{name}-{number}"
                number += 1
        return known[values]

    def _kind_name(self, c: int, members: list[int]) -> str:
        """After the values, such as ``tile-1-to-8`` or ``only-tile-0``."""
        values = [str(self.symbols.values[c][v]) for v in members]
        if len(values) == 1:
            return f"only-{self.names[c]}-{values[0]}"
        if members == list(range(members[0], members[-1] + 1)):
            return f"{self.names[c]}-{values[0]}-to-{values[-1]}"
        return f"{self.names[c]}-kind"


def step(values: Sequence[Value], pair: Iterable[int]) -> float | None:
    """By how much two values differ; None where they are words."""
    one, other = (values[v] for v in pair)
    if isinstance(one, str) or isinstance(other, str):
        return None
    return other - one


def _range(group: Group, at: int) -> frozenset[int]:
    return frozenset(binding[at] for binding in group.bindings)
