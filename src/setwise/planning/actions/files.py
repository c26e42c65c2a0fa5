"""Recordings and problems as files, which any program can write.

JSON Lines, one transition a line, elements as lists of numbers or words in any order; the names of
the features may stand in a line before the first, and each transition may name what was done::

    {"features": ["disk", "peg"]}
    {"before": [[1, "left"], [2, "left"]], "after": [[1, "right"], [2, "left"]], "action": "move"}

An ``.npz`` has the arrays ``before`` [T, N, F] and ``after`` [T, M, F], and if need be
``before_valid`` [T, N] and ``after_valid`` [T, M], false at padding; ``features`` [F], names; and
``actions`` [T]. A problem is one object of JSON, ``{"init": [...], "goal": [...]}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from setwise.files import atomic_write, atomic_write_text, require_regular
from setwise.outside import named, read_arrays, read_json
from setwise.planning.actions.columns import Columns, measured_recording
from setwise.planning.actions.recording import Recording, from_elements
from setwise.planning.actions.symbols import Element

_OPTIONAL = ("before_valid", "after_valid", "features", "actions")
Sets = list[list[Element]]


def read_recording(
    path: Path, *, measured: Sequence[str] = (), angles: Sequence[str] = ()
) -> Recording:
    """A recording in either form; what is wrong with it is said with the place where it is.

    Features are their own symbols, but for those that are ``measured``, numbers that shake, and
    ``angles``, directions in radians that do: symbols of these are learned, see `MeasuredSymbols`.
    Features named together, ``"x,y"``, are one. The model of such a recording is given sets as they
    stand in the file, and those of its plans are what is typical.
    """
    read = _read_arrays if path.suffix == ".npz" else _read_lines
    with named(path):
        before, after, names, actions = read(path)
        if not before:
            raise ValueError("holds no transition; at least one is needed")
        features = len(next((one[0] for one in (*before, *after) if one), ()))
        if features == 0:
            raise ValueError("all of its sets are empty")
        names = names or [f"feature{number}" for number in range(features)]
        _check_lengths(before, after, names)
        if not measured and not angles:
            return from_elements(before, after, names, actions)
        every = (element for sets in (before, after) for one in sets for element in one)
        columns = Columns.of(every, names, measured, angles)
        return measured_recording(before, after, columns, actions)


def write_recording(recording: Recording, path: Path) -> None:
    """Write JSON Lines, or arrays where the path ends in ``.npz``."""
    symbols = recording.symbols
    before = [symbols.elements(state) for state in recording.before]
    after = [symbols.elements(state) for state in recording.after]
    if path.suffix == ".npz":
        arrays = {"features": np.array(symbols.names)}
        for name, sets in (("before", before), ("after", after)):
            size = max(map(len, sets))
            filler = symbols.element(0)
            padded = [[*map(list, one + [filler] * (size - len(one)))] for one in sets]
            arrays[name] = np.array(padded).reshape(len(sets), size, len(symbols.names))
            if arrays[name].dtype.hasobject or arrays[name].tolist() != padded:
                raise ValueError(
                    f"{path}: an .npz holds numbers or words, not both, and numbers of one kind, "
                    f"which would change some of these values; write a .jsonl"
                )
            arrays[f"{name}_valid"] = np.array([np.arange(size) < len(one) for one in sets])
        if recording.actions is not None:
            arrays["actions"] = np.array(recording.actions)
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        return
    lines = [{"features": symbols.names}]
    for number, (one, other) in enumerate(zip(before, after, strict=True)):
        line: dict[str, Any] = {"before": one, "after": other}
        if recording.actions is not None:
            line["action"] = recording.actions[number]
        lines.append(line)
    atomic_write_text(path, "".join(json.dumps(line) + "\n" for line in lines))


def read_problem(path: Path) -> tuple[list[Element], list[Element]]:
    """The sets that a problem leads from and to."""
    data = read_json(path)
    if set(data) != {"init", "goal"}:
        raise ValueError(f'{path}: expected {{"init": [...], "goal": [...]}}, two sets of elements')
    return _set(data["init"], f"{path}: init"), _set(data["goal"], f"{path}: goal")


def write_problem(init: Sequence[Element], goal: Sequence[Element], path: Path) -> None:
    """JSON that `read_problem` takes."""
    atomic_write_text(path, json.dumps({"init": list(init), "goal": list(goal)}) + "\n")


def _read_lines(path: Path) -> tuple[Sets, Sets, list[str] | None, list[str] | None]:
    names: list[str] | None = None
    before: Sets = []
    after: Sets = []
    actions: list[str] = []
    require_regular(path)
    lines = path.read_bytes().split(b"\n")
    for number, raw in enumerate(lines, start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"line {number}: not UTF-8: {error.reason}") from error
        if not line.strip():
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # one that no end of a line follows
                raise ValueError(
                    f"line {number}: the file ends in the middle of a line; it was cut off after "
                    f"{len(before)} whole transitions, which head -n {number - 1} keeps"
                ) from error
            raise ValueError(f"line {number}: not JSON: {error}") from error
        if number == 1 and isinstance(data, dict) and set(data) == {"features"}:
            names = _names(data["features"], "line 1")
            continue
        if not isinstance(data, dict) or not {"before", "after"} <= set(data) <= {
            *("before", "after", "action")
        }:
            raise ValueError(
                f'line {number}: expected {{"before": [...], "after": [...]}}, and perhaps an '
                f'"action", got {line[:60]}'
            )
        before.append(_set(data["before"], f"line {number}: before"))
        after.append(_set(data["after"], f"line {number}: after"))
        if "action" in data:
            actions.append(str(data["action"]))
    if actions and len(actions) != len(before):
        raise ValueError(
            f"{len(actions)} of {len(before)} transitions name an action; name all or none"
        )
    return before, after, names, actions or None


def _read_arrays(path: Path) -> tuple[Sets, Sets, list[str] | None, list[str] | None]:
    arrays = read_arrays(path, ("before", "after"), _OPTIONAL)
    sides: list[Sets] = []
    for name in ("before", "after"):
        sets = arrays[name]
        if sets.ndim != 3 or sets.dtype.kind not in "iufbU":
            raise ValueError(
                f"{name}: expected numbers or words [transitions, elements, features], "
                f"got {sets.dtype} {sets.shape}"
            )
        valid = arrays.get(f"{name}_valid", np.ones(sets.shape[:2], dtype=bool))
        if valid.dtype != bool or valid.shape != sets.shape[:2]:
            raise ValueError(f"{name}_valid: expected bool {sets.shape[:2]}, got {valid.shape}")
        chosen = [one[mask].tolist() for one, mask in zip(sets, valid, strict=True)]
        sides.append([_set(one, f"{name}[{number}]") for number, one in enumerate(chosen)])
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"{len(sides[0])} sets before, but {len(sides[1])} after")
    names = _names(arrays["features"].tolist(), "features") if "features" in arrays else None
    actions = [str(one) for one in arrays["actions"].tolist()] if "actions" in arrays else None
    if actions is not None and len(actions) != len(sides[0]):
        raise ValueError(f"actions: expected {len(sides[0])} names, got {len(actions)}")
    return sides[0], sides[1], names, actions


def _finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # of a whole number that no other kind can hold
        return False


def _set(given: Any, place: str) -> list[Element]:
    """A set out of JSON: lists of numbers or words."""
    if not isinstance(given, list) or not all(isinstance(one, list) and one for one in given):
        raise ValueError(f"{place}: expected a list of elements, lists of numbers or words")
    for one in given:
        for value in one:
            if not isinstance(value, str) and not _finite(value):
                raise ValueError(f"{place}: expected numbers or words, got {value!r:.60}")
    return [
        tuple(int(v) if isinstance(v, bool | float) and v == int(v) else v for v in one)
        for one in given
    ]


def _names(given: Any, place: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) and name for name in given):
        raise ValueError(f"{place}: features: expected a list of names, got {given!r:.60}")
    if len(set(given)) < len(given):
        raise ValueError(f"{place}: features: expected different names, got {given!r:.60}")
    return given


def _check_lengths(before: Sets, after: Sets, names: Sequence[str]) -> None:
    for end, sets in (("before", before), ("after", after)):
        for number, one in enumerate(sets, start=1):
            for element in one:
                if len(element) != len(names):
                    raise ValueError(
                        f"transition {number}: {end}: {element} has {len(element)} values, "
                        f"expected {len(names)}: {', '.join(names)}"
                    )
