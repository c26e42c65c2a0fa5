"""The transitions of a recording by what they do."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from setwise.planning.actions.differences import Pattern, pattern_of
from setwise.planning.actions.preconditions import Observation
from setwise.planning.actions.recording import Recording
from setwise.planning.actions.schema import Digits
from setwise.planning.actions.symbols import State, Symbols, Value

Key = tuple[Digits, Pattern, str]  # slots, what is done, and what it is called but for arguments
Groups = list[tuple[Key, tuple[list[Observation], list[str]]]]


def grouped_transitions(
    recording: Recording,
    digits: dict[int, Digits],
    states: dict[State, tuple[Digits, ...]],
    *,
    lift: bool,
) -> tuple[Groups, int]:
    """The transitions by slots, pattern and name, most frequent first; and how many do nothing.

    What is called differently has conditions of its own, as a door has that is unlocked or picked.
    """
    differences = [
        (before - after, after - before)
        for before, after in zip(recording.before, recording.after, strict=True)
    ]
    rank = _by_frequency(recording.symbols, differences, digits)
    known: dict[tuple[State, State], tuple[tuple[Digits, Pattern], tuple[int, ...]]] = {}
    groups: dict[Key, tuple[list[Observation], list[str]]] = defaultdict(lambda: ([], []))
    unchanged = 0
    for number, (removed, added) in enumerate(differences):
        if not removed and not added:
            unchanged += 1
            continue
        if (removed, added) not in known:
            gone, come = ([digits[code] for code in sorted(side)] for side in (removed, added))
            if lift:
                pattern, binding = pattern_of(gone, come, rank)
                slots = tuple(map(len, binding))
                known[removed, added] = (slots, pattern), sum(binding, ())
            else:
                none = (0,) * len(recording.symbols.names)
                known[removed, added] = (none, Pattern((tuple(gone), tuple(come)))), ()
        (slots, pattern), values = known[removed, added]
        name = "" if recording.actions is None else recording.actions[number]
        arguments = _spelled(recording.symbols, slots, values)
        observations, said = groups[slots, pattern, without_arguments(name, arguments)]
        observations.append((values, states[recording.before[number]]))
        if name:
            said.append(name)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1][0]), item[0]))
    return ordered, unchanged


def without_arguments(name: str, arguments: list[Value]) -> str:
    """A name with its arguments left out, so that those which differ by these alone are one.

    >>> without_arguments("put disk 3 on peg-1", [3, 1]), without_arguments("go 13", [3, 1])
    ('put disk # on peg-#', 'go 13')
    """
    words = sorted((str(value) for value in arguments), key=len, reverse=True)
    if not words:
        return name
    one_of = "|".join(map(re.escape, words))
    return re.sub(rf"(?<![^\W_])(?:{one_of})(?![^\W_])", "#", name)


def _spelled(symbols: Symbols, slots: Digits, binding: tuple[int, ...]) -> list[Value]:
    """The values in the slots of a binding."""
    features = [c for c, count in enumerate(slots) for _ in range(count)]
    return [symbols.values[c][value] for c, value in zip(features, binding, strict=True)]


def _by_frequency(
    symbols: Symbols, differences: list[tuple[State, State]], digits: dict[int, Digits]
) -> list[list[int]]:
    """The rank of each value of each feature, those that change most often first."""
    counts: list[Counter[int]] = [Counter() for _ in symbols.names]
    for removed, added in differences:
        for code in removed | added:
            for count, value in zip(counts, digits[code], strict=True):
                count[value] += 1
    ranks = []
    for count, size in zip(counts, symbols.sizes, strict=True):
        order = sorted(range(size), key=lambda value: (-count[value], value))
        ranks.append([order.index(value) for value in range(size)])
    return ranks
