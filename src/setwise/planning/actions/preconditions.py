"""Safe learning of preconditions (Juba, Le and Stern, 2021): what held whenever an action was seen.

An element that was always there is demanded, and one that never was is forbidden; both are dropped
as soon as one before-state shows that they are not needed. So what is learned allows no more than
the truth, as far as the truth can be said in these words (see `Schema`): with few transitions it
allows little, and never too much. What was seen fewer than ``support`` times counts as not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from setwise.planning.actions.differences import Pattern
from setwise.planning.actions.schema import Action, Binding, Digits, Schema

Observation = tuple[Binding, tuple[Digits, ...]]  # the arguments, and the elements before


def learn_schema(
    name: str,
    sizes: Digits,
    slots: Digits,
    pattern: Pattern,
    observations: Sequence[Observation],
    fixed: frozenset[Digits],
    support: int,
    *,
    absent: bool,
) -> Schema | None:
    """The schema of all transitions of one pattern; None if nothing of it was seen often enough.

    ``fixed`` are elements of every state, which tell nothing by being there. Not ``absent``,
    nothing is forbidden.
    """
    observations = _supported(observations, support)
    if len(observations) < support:
        return None
    places = range(sum(slots))
    counts = _Counts(slots, observations)
    few = support - 1  # so often, if at all, may something have been missing or been there
    schema = Schema(
        name=name,
        sizes=sizes,
        slots=slots,
        removed=pattern.removed,
        added=pattern.added,
        seen=len(observations),
        ranges=tuple(frozenset(b[i] for b, _ in observations) for i in places),
        pairs={
            (i, j): frozenset((b[i], b[j]) for b, _ in observations)
            for i, j in combinations(places, 2)
        },
        must=frozenset(
            template
            for template, there in counts.there.items()
            if there > few
            and counts.could_be(template, len(observations) - there, few)
            and _values(template, slots) not in fixed
        ),
        may=frozenset(t for t, there in counts.there.items() if there > few) if absent else None,
        must_with={
            key: frozenset(
                template
                for template, there in found.items()
                if there > few
                and counts.missing_with(key, template) <= few
                and _values(template, slots) not in fixed
            )
            for key, found in counts.there_with.items()
        },
        may_with={
            key: frozenset(t for t, there in found.items() if there > few) if absent else None
            for key, found in counts.there_with.items()
        },
    )
    # Once is enough to be able to do it again; of more, one half may forbid what the other demands.
    if support > 1 and not any(map(_can_be_done, map(schema.action, schema.bindings()))):
        return None
    return schema


def _can_be_done(action: Action) -> bool:
    """Whether nothing is both demanded and forbidden."""
    return bool(action.may[list(action.must)].all())


class _Counts:
    """How often each template was there, in all and with each value in each slot."""

    def __init__(self, slots: Digits, observations: Sequence[Observation]) -> None:
        self.slots, self.observations = slots, observations
        self.there: Counter[Digits] = Counter()
        self.there_with: dict[tuple[int, int], Counter[Digits]] = {}
        self.held: Counter[tuple[int, int]] = Counter()  # a value in a slot
        self.both: Counter[tuple[tuple[int, int], tuple[int, int]]] = Counter()  # and another
        self.bound: list[list[dict[int, int]]] = []  # of each feature, the slot of each value
        self.taken: Counter[tuple[int, int]] = Counter()  # a value of a feature, by any slot
        starts = [sum(slots[:c]) for c in range(len(slots))]
        for binding, _ in observations:
            bound = [
                {value: k for k, value in enumerate(binding[start : start + count])}
                for start, count in zip(starts, slots, strict=True)
            ]
            self.bound.append(bound)
            self.taken.update((c, value) for c, values in enumerate(bound) for value in values)
            keys = list(enumerate(binding))
            for key in keys:
                self.held[key] += 1
                self.there_with.setdefault(key, Counter())
                for c, values in enumerate(bound):
                    for value in values:
                        self.both[key, (c, value)] += 1
        for bound, (binding, elements) in zip(self.bound, observations, strict=True):
            keys = list(enumerate(binding))
            for element in elements:
                template = tuple(
                    bound[c].get(value, count + value)
                    for c, (value, count) in enumerate(zip(element, slots, strict=True))
                )
                self.there[template] += 1
                for c in self._of_a_slot(template):
                    for key in keys[starts[c] : starts[c] + slots[c]]:
                        self.there_with[key][template] += 1

    def _of_a_slot(self, template: Digits) -> list[int]:
        """The features whose slots may have to do with a template by what they hold.

        Its one value may be of such a feature, or one value of an element without slots, if the
        action never touches its others: such as where a blank is, for the place of what moves.
        """
        own = [c for c, digit in enumerate(template) if digit >= self.slots[c]]
        if len(own) == len(template) > 1:
            touched = [c for c in own if (c, template[c] - self.slots[c]) in self.taken]
            return own if not touched else touched if len(touched) == 1 else []
        return own if len(own) == 1 else []

    def missing_with(self, key: tuple[int, int], template: Digits) -> int:
        """How often a template was not there, with this value in this slot, where it could be."""
        at, _ = key
        c = next(c for c in range(len(self.slots)) if at < sum(self.slots[: c + 1]))
        elsewhere = self.both[key, (c, template[c] - self.slots[c])]
        return self.held[key] - elsewhere - self.there_with[key][template]

    def could_be(self, template: Digits, missing: int, most: int) -> bool:
        """Whether a template was missing at most so often where it could have been there.

        It could not where one of its values was in a slot.
        """
        digits = enumerate(zip(template, self.slots, strict=True))
        own = [(c, digit - count) for c, (digit, count) in digits if digit >= count]
        if missing - sum(self.taken[value] for value in own) > most:
            return False  # known without a look at each
        return missing - sum(any(v in bound[c] for c, v in own) for bound in self.bound) <= most


def _supported(observations: Sequence[Observation], support: int) -> list[Observation]:
    """Those in which each two arguments, and each alone, were seen together often enough."""
    if support == 1:
        return list(observations)
    counts: Counter[tuple[tuple[int, int], ...]] = Counter()
    for binding, _ in observations:
        counts.update(_ones_and_twos(binding))
    kept = [
        (binding, elements)
        for binding, elements in observations
        if all(counts[some] >= support for some in _ones_and_twos(binding))
    ]
    # Without those that are left out, others are rarer.
    return kept if len(kept) == len(observations) else _supported(kept, support)


def _ones_and_twos(binding: Binding) -> list[tuple[tuple[int, int], ...]]:
    keys = list(enumerate(binding))
    return [*((key,) for key in keys), *combinations(keys, 2)]


def _values(template: Digits, slots: Digits) -> Digits | None:
    """The element that a template without slots is."""
    if any(digit < count for digit, count in zip(template, slots, strict=True)):
        return None
    return tuple(digit - count for digit, count in zip(template, slots, strict=True))
