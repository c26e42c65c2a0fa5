"""kill -9 at many moments of every long command: the same command then comes to the same bits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from attacked_commands import DATA, DEMO, OWN, PLAN, REPORT, TRAIN, content
from killed import kill_often
from recorded import SH, make_records, write
from setwise.experiments.recipes import demo

# Slow: over a hundred processes. In the first tier tests/experiments and tests/test_files.py have
# the worst moments of a training and of a writer.
pytestmark = pytest.mark.slow
KILLS = 20


@pytest.fixture
def empty(tmp_path: Path) -> Callable[[], Path]:
    """Makes a new folder."""
    return lambda: Path(tempfile.mkdtemp(dir=tmp_path))


def test_train(empty: Callable[[], Path]) -> None:
    def fresh() -> Path:
        folder = empty()
        (folder / "own.py").write_text(OWN)
        return folder

    first, *ended = kill_often(TRAIN, fresh, KILLS, seed=1)
    expected = content(first)
    assert len(expected["results/own.jsonl"]) == 4
    assert len([name for name in expected if name.endswith(".safetensors")]) == 4
    for folder in ended:
        assert content(folder) == expected


def test_demo_and_plan(empty: Callable[[], Path]) -> None:
    """A network of the demonstration is planned with; the planner's temporary folders are gone."""
    first, *ended = kill_often(DEMO, empty, KILLS, seed=2)
    made = content(first)
    networks = {f"demo/{loss}.safetensors" for loss in demo.LOSSES}
    assert made.keys() == {"tmp", "demo", "demo/index.html", *networks}
    for folder in ended:
        assert content(folder) == made

    def fresh() -> Path:
        folder = empty()
        (folder / "net").write_bytes(made[f"demo/{SH}.safetensors"])
        return folder

    first, *ended = kill_often(PLAN, fresh, KILLS, seed=3)
    expected = content(first)
    assert {Path(name).name for name in expected} >= {"plans.json", "plan.json", "00.png"}
    assert not [name for name in expected if name.startswith("tmp/")]
    for folder in ended:
        assert content(folder) == expected


def test_data(empty: Callable[[], Path]) -> None:
    first, *ended = kill_often(DATA, empty, KILLS, seed=4)
    expected = content(first)
    assert len([name for name in expected if name.endswith(".png")]) == 5
    for folder in ended:
        assert content(folder) == expected


def test_report(empty: Callable[[], Path]) -> None:
    def fresh() -> Path:
        folder = empty()
        write(folder / "results", make_records(losses=[SH], scenarios=["4"]))
        return folder

    first, *ended = kill_often(REPORT, fresh, KILLS, seed=5)
    expected = content(first)
    assert len(expected["report.html"]) > 10_000
    for folder in ended:
        assert content(folder) == expected
