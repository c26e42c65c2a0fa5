"""A recording: sets before and after each of many steps, in the codes of their symbols.

Legend: T transitions, N and M elements of a set, F numbers of an element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch
from torch import Tensor

from setwise.features import Features
from setwise.planning.actions.symbols import (
    Element,
    State,
    Symbols,
    Value,
    symbols_in,
    symbols_of,
)


@dataclass(frozen=True)
class Recording:
    """Transitions between sets; ``actions`` are the names of what was done, if they are known."""

    symbols: Symbols
    before: tuple[State, ...]
    after: tuple[State, ...]
    actions: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.before)

    def __post_init__(self) -> None:
        """Names must be worth something: the same done to the same set has one result."""
        if not self.before:
            raise ValueError("the recording holds no transition; at least one is needed")
        if len(self.after) != len(self.before):
            raise ValueError(f"{len(self.before)} sets before, but {len(self.after)} after")
        if self.actions is None:
            return
        if len(self.actions) != len(self.before):
            raise ValueError(f"actions: expected {len(self.before)} names, got {len(self.actions)}")
        results: dict[tuple[State, str], tuple[int, State]] = {}
        steps = zip(self.before, self.actions, self.after, strict=True)
        for number, (before, action, after) in enumerate(steps, start=1):
            first, result = results.setdefault((before, action), (number, after))
            if result != after:
                raise ValueError(
                    f"transitions {first} and {number} contradict each other: {action!r} is done "
                    f"to the same set, with different results; record what decides between them, "
                    f"or leave the names of actions out"
                )


def from_tensors(
    before: Tensor,
    after: Tensor,
    features: Features | None = None,
    *,
    before_valid: Tensor | None = None,
    after_valid: Tensor | None = None,
    names: Sequence[str] | None = None,
    actions: Sequence[str] | None = None,
) -> Recording:
    """A recording of sets ``before`` [T, N, F] and ``after`` [T, M, F], elements in any order.

    Where sets have different sizes, ``before_valid`` [T, N] and ``after_valid`` [T, M] are true at
    elements and false at padding.
    """
    if before.dim() != 3 or after.dim() != 3 or before.shape[::2] != after.shape[::2]:
        raise ValueError(
            f"before and after: expected [transitions, elements, features] twice, equal but for "
            f"the elements, got {tuple(before.shape)} and {tuple(after.shape)}"
        )
    masks = [_mask("before", before, before_valid), _mask("after", after, after_valid)]
    sets = torch.cat([before[masks[0]], after[masks[1]]]).detach().cpu()
    symbols, codes = symbols_in(sets, features, names)
    sizes = torch.cat([mask.sum(-1) for mask in masks]).tolist()
    states = _states(symbols, codes.tolist(), sizes)
    done = None if actions is None else tuple(actions)
    return Recording(symbols, states[: len(before)], states[len(before) :], done)


def from_elements(
    before: Sequence[Sequence[Sequence[Value]]],
    after: Sequence[Sequence[Sequence[Value]]],
    names: Sequence[str],
    actions: Sequence[str] | None = None,
) -> Recording:
    """A recording of sets that are lists of elements, each of numbers or words.

    >>> recording = from_elements([[("lamp", "off")]], [[("lamp", "on")]], ["what", "how"])
    >>> recording.symbols.values
    (('lamp',), ('off', 'on'))
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} sets before, but {len(after)} after")
    rows: list[Element] = [tuple(e) for sets in (before, after) for one in sets for e in one]
    elements = set(rows)
    symbols = symbols_of(elements, names)
    codes = {element: symbols.code(element) for element in elements}
    flat = [codes[element] for element in rows]
    sizes = [len(one) for sets in (before, after) for one in sets]
    states = _states(symbols, flat, sizes)
    done = None if actions is None else tuple(actions)
    return Recording(symbols, states[: len(before)], states[len(before) :], done)


def together(recordings: Iterable[Recording]) -> Recording:
    """One recording of several of the same features, such as of boards of different sizes."""
    parts = list(recordings)
    names = {part.symbols.names for part in parts}
    if len(names) != 1:
        raise ValueError(f"expected recordings of the same features, got {sorted(names)}")
    if any(type(part.symbols) is not Symbols for part in parts):
        raise ValueError(
            "expected recordings of elements that are their own symbols; codes learned from one "
            "name other values than those from another: learn them from the sets of all"
        )
    before = [part.symbols.elements(state) for part in parts for state in part.before]
    after = [part.symbols.elements(state) for part in parts for state in part.after]
    actions = [name for part in parts for name in part.actions or ()]
    named = all(part.actions is not None for part in parts)
    whole = from_elements(before, after, parts[0].symbols.names, actions if named else None)
    dtype = reduce(torch.promote_types, (part.symbols.dtype for part in parts))
    return replace(whole, symbols=replace(whole.symbols, widths=_widths(parts), dtype=dtype))


def _widths(parts: Sequence[Recording]) -> tuple[int, ...] | None:
    """How tensors spell what is in all of the parts: in the widest of their one-hot forms."""
    given = [part.symbols.widths for part in parts]
    widths = [one for one in given if one is not None]
    if len(widths) < len(given):
        return None
    columns = list(zip(*widths, strict=True))
    mixed = any(min(column) == 1 < max(column) for column in columns)  # numbers here, classes there
    return None if mixed else tuple(map(max, columns))


def _states(symbols: Symbols, codes: list[int], sizes: list[int]) -> tuple[State, ...]:
    """Codes of one set after the other, as sets; an element that is there twice is an error."""
    states, start = [], 0
    for number, size in enumerate(sizes):
        chosen = codes[start : start + size]
        states.append(frozenset(chosen))
        if len(states[-1]) < size:
            twice = next(code for code in chosen if chosen.count(code) > 1)
            half = len(sizes) // 2
            end = "before" if number < half else "after"
            raise ValueError(
                f"transition {number % half + 1}: {symbols.element(twice)} is there twice {end}; "
                f"elements must be distinct: add a feature that tells them apart"
            )
        start += size
    return tuple(states)


def _mask(name: str, sets: Tensor, valid: Tensor | None) -> Tensor:
    if valid is None:
        return torch.ones(sets.shape[:2], dtype=torch.bool, device=sets.device)
    if valid.dtype != torch.bool or valid.shape != sets.shape[:2]:
        raise ValueError(
            f"{name}_valid: expected bool {tuple(sets.shape[:2])}, "
            f"got {valid.dtype} {tuple(valid.shape)}"
        )
    return valid
