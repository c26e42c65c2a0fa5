"""kill -9 at many moments of every long command: the same command then comes to the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attacked_commands import COMMANDS, content
from killed import kill_often
from setwise.experiments.recipes import demo

# Slow: over a hundred processes. In the first tier tests/experiments and tests/test_files.py have
# the worst moments of a training and of a writer. Each moment of each command by itself is in
# one_by_one.py, which takes too long for the suite.
pytestmark = pytest.mark.slow
KILLS = 20


def left_by(name: str, place: Path, seed: int) -> dict[str, Any]:
    """The files of a command, which are the same wherever it was killed."""
    attacked = COMMANDS[name]
    first, *ended = kill_often(attacked.command, lambda: attacked.fresh(place), KILLS, seed)
    expected = content(first)
    for folder in ended:
        assert content(folder) == expected
    return expected


def test_train(tmp_path: Path) -> None:
    left = left_by("train FILE.py", tmp_path, seed=1)
    assert len(left["results/own.jsonl"]) == 4
    assert len([name for name in left if name.endswith(".safetensors")]) == 4


def test_demo(tmp_path: Path) -> None:
    left = left_by("demo", tmp_path, seed=2)
    networks = {f"demo/{loss}.safetensors" for loss in demo.LOSSES}
    assert left.keys() == {"tmp", "demo", "demo/index.html", *networks}


def test_plan(tmp_path: Path) -> None:
    """The planner's temporary folders are gone."""
    left = left_by("plan", tmp_path, seed=3)
    assert {Path(name).name for name in left} >= {"plans.json", "plan.json", "00.png"}
    assert not [name for name in left if name.startswith("tmp/")]


def test_data(tmp_path: Path) -> None:
    left = left_by("data blocksworld", tmp_path, seed=4)
    assert len([name for name in left if name.endswith(".png")]) == 5


def test_report(tmp_path: Path) -> None:
    left = left_by("report", tmp_path, seed=5)
    assert len(left["report.html"]) > 10_000
