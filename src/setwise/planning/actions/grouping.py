"""The transitions of a recording by what they do."""

from __future__ import annotations

from collections import Counter, defaultdict

from setwise.planning.actions.differences import Pattern, pattern_of
from setwise.planning.actions.preconditions import Observation
from setwise.planning.actions.recording import Recording
from setwise.planning.actions.schema import Digits
from setwise.planning.actions.symbols import State, Symbols

Groups = list[tuple[tuple[Digits, Pattern], tuple[list[Observation], list[str]]]]


def grouped_transitions(
    recording: Recording,
    digits: dict[int, Digits],
    states: dict[State, tuple[Digits, ...]],
    *,
    lift: bool,
) -> tuple[Groups, int]:
    """The transitions by slots and pattern, most frequent first, and how many change nothing."""
    differences = [
        (before - after, after - before)
        for before, after in zip(recording.before, recording.after, strict=True)
    ]
    rank = _by_frequency(recording.symbols, differences, digits)
    known: dict[tuple[State, State], tuple[tuple[Digits, Pattern], tuple[int, ...]]] = {}
    groups: dict[tuple[Digits, Pattern], tuple[list[Observation], list[str]]]
    groups = defaultdict(lambda: ([], []))
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
        key, values = known[removed, added]
        observations, said = groups[key]
        observations.append((values, states[recording.before[number]]))
        if recording.actions is not None:
            said.append(recording.actions[number])
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1][0]), item[0]))
    return ordered, unchanged


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
