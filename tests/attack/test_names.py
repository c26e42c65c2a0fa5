"""Names from anywhere: each is that of a file in its folder, or refused, and nothing is removed."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from setwise.files import file_in
from setwise.planning import read_problems
from setwise.planning.recorded import write_plan
from setwise.worlds import PuzzleWorld

# Slow: 600 folders. The kinds of names are in tests/test_files.py.
pytestmark = pytest.mark.slow
CASES = 600
WORLD = PuzzleWorld(2, 2)
PICTURES = np.zeros((1, 2, 2, 3), np.uint8)
PIECES = [
    *(".", "..", "/", "\\", "-", "~", " ", "\t", "\n", "\0", "\x1b", "$(x)", "`x`", "%2e", "*"),
    *("con", "NUL", "aux.", "a", "b", "plan.json", "00.png", "notes", "é", "e\u0301", "数"),
    *("\u202e", "\ud800", "\ufeff", "\u200b", "x" * 120, "ä" * 60, ":", '"', "<b>", ".git"),
]


def name_of(seed: int) -> str:
    rng = random.Random(seed)
    return "".join(rng.choice(PIECES) for _ in range(rng.choice([1, 1, 2, 2, 3, 5])))


def problem(name: str) -> str:
    state = WORLD.goal().tolist()
    return json.dumps([{"name": name, "init": state, "goal": state}])


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_name_leads_to_its_own_place(tmp_path: Path) -> None:
    plans = tmp_path / "deep" / "plans"
    write_plan(plans / "other", PICTURES, ["of somebody"], {})
    for place in (plans, tmp_path / "deep", tmp_path):
        (place / "notes").write_text("of somebody")
    before = content(tmp_path)
    taken = 0
    for name in map(name_of, range(CASES)):
        folder = recorded(name, plans)
        after = content(tmp_path)
        assert {path: data for path, data in after.items() if path in before} == before, name
        if folder is None:
            assert after == before, name
            continue
        taken += 1
        assert folder.name == name
        assert {Path(path).parent for path in after.keys() - before.keys()} == {folder}
        shutil.rmtree(folder)
    assert 30 < taken < CASES / 2


def recorded(name: str, plans: Path) -> Path | None:
    """Where the plan of a problem of that name is, which reads and writes as the command does."""
    try:
        [found] = read_problems(problem(name), WORLD)
        folder = file_in(plans, found.name)
        write_plan(folder, PICTURES, ["new"], {})
    except ValueError as error:
        return None if "\n" not in str(error) else Path("a message of several lines")
    return folder
