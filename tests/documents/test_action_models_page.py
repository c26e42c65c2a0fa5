"""docs/action-models.md: its PDDL is what is learned, its numbers are those of the records."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import action_curves

from pictures import differing_pixels


def test_the_page_is_current() -> None:
    page = action_curves.PAGE.read_text()
    assert action_curves.update(action_curves.read(), page) == page, "run make docs"


def test_the_figure_is_current(tmp_path: Path) -> None:
    action_curves.draw(action_curves.read(), tmp_path / "again.png")
    committed = action_curves.PAGE.parent / "figures" / action_curves.FIGURE
    assert differing_pixels(committed, tmp_path / "again.png") < 0.01, "run make docs"


def test_every_plan_that_was_found_is_valid() -> None:
    records = action_curves.read()
    assert len(records) >= 8
    assert all(one["valid"] == one["solved"] == len(one["steps"]) for one in records)


def test_what_the_page_promises_was_measured() -> None:
    """All that are solved, of the largest recordings of each world."""
    whole = {
        (one["setting"]["world"], one["setting"]["transitions"], one["setting"]["steps"]): (
            one["solved"] / one["setting"]["problems"]
        )
        for one in action_curves.read()
        if one["setting"]["lift"]
    }
    assert whole["puzzle-3x3", 500, action_curves.SHUFFLED] == 1
    assert whole["puzzle-4x4", 2000, 40] == whole["puzzle-4x4", 2000, action_curves.SHUFFLED] == 1
    for world, transitions, steps in (("hanoi-4x3", 500, 20), ("lights-4x4", 3000, 8)):
        assert whole[world, transitions, steps] >= 0.95
    assert whole["pushing-6x6", 20000, 12] >= 0.95


def test_a_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = action_curves.Setting("hanoi-2x3", 60, walk=10, steps=3, problems=2)
    monkeypatch.setattr(action_curves, "RECORDS", tmp_path / "curves.jsonl")
    monkeypatch.setattr(action_curves, "settings", lambda: [small])
    action_curves.record()
    [found] = action_curves.read()
    assert (found["solved"], found["valid"]) == (2, 2)
    action_curves.record()  # what is recorded is not measured again
    assert action_curves.read() == [found]
    said = "| hanoi-2x3 | lifted | 60 | 10 | 3 random steps | 2 of 2 | 2 of 2 |"
    assert said in action_curves.table([found])
    found["setting"] |= {"lift": False, "absent": False}
    assert "| ground, `absent=False` | 60 |" in action_curves.table([found])
