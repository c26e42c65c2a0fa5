"""docs/action-models.md: its PDDL is what is learned, its numbers are those of the records."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from tools import (
    action_bits,
    action_curves,
    action_measured,
    action_records,
    action_truth,
    actions,
)

from pictures import differing_pixels


def curves() -> list[dict[str, Any]]:
    return action_records.read(action_curves.RECORDS)


def test_the_page_is_current() -> None:
    page = actions.PAGE.read_text()
    assert actions.update(page) == page, "run make docs"


def test_the_figure_is_current(tmp_path: Path) -> None:
    action_curves.draw(curves(), tmp_path / "again.png")
    assert differing_pixels(actions.FIGURE, tmp_path / "again.png") < 0.01, "run make docs"


def test_every_plan_that_was_found_is_valid() -> None:
    assert all(one["valid"] == one["solved"] == len(one["steps"]) for one in curves())


def test_everything_was_measured() -> None:
    """What would be measured is what is recorded, and nothing else."""
    for part, settings in (
        (action_truth, action_truth.settings()),
        (action_curves, [*action_curves.promised(), *action_curves.curves()]),
        (action_measured, action_measured.settings()),
        (action_bits, action_bits.settings()),
    ):
        found = [one["setting"] for one in action_records.read(part.RECORDS)]
        assert len(found) == len(settings)
        assert all(asdict(setting) in found for setting in settings)


def test_what_the_page_promises_was_measured() -> None:
    """All that are solved, of the largest recordings of each world."""
    whole = {
        (one["setting"]["world"], one["setting"]["transitions"], one["setting"]["steps"]): (
            one["solved"] / one["setting"]["problems"]
        )
        for one in curves()
        if one["setting"]["lift"] and one["setting"]["problems"] >= 40
    }
    assert whole["puzzle-3x3", 500, action_curves.SHUFFLED] == 1
    assert whole["puzzle-4x4", 2000, 40] == whole["puzzle-4x4", 2000, action_curves.SHUFFLED] == 1
    for world, transitions, steps in (("hanoi-4x3", 500, 20), ("lights-4x4", 3000, 8)):
        assert whole[world, transitions, steps] >= 0.95
    assert whole["pushing-6x6", 20000, 12] >= 0.95


def test_models_of_the_puzzle_are_the_truth_where_the_page_says_so() -> None:
    lifted, ground, careful, seen_more = action_records.read(action_truth.RECORDS)
    for one in (lifted, ground, seen_more):
        assert one["states"] == 362880
        assert one["states_wrong"] == one["moves_lacking"] == 0
        assert one["steps"] == one["furthest"] == 31
    assert careful["moves_lacking"] > 0
    assert all(one["moves_made_up"] == 0 for one in (lifted, ground, careful, seen_more))


def test_symbols_of_what_shakes_little_are_right() -> None:
    for one in action_records.read(action_measured.RECORDS):
        if one["setting"]["shaking"] <= 0.1:
            assert min(one["agreement"]) > 0.999
            assert one["valid"] == one["solved"] == one["setting"]["problems"]


def test_a_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = action_curves.Setting("hanoi-2x3", 60, walk=10, steps=3, problems=2)
    monkeypatch.setattr(action_curves, "RECORDS", tmp_path / "curves.jsonl")
    monkeypatch.setattr(action_curves, "promised", lambda: [small])
    monkeypatch.setattr(action_curves, "curves", list)
    action_curves.record()
    [found] = curves()
    assert (found["solved"], found["valid"]) == (2, 2)
    action_curves.record()  # what is recorded is not measured again
    assert curves() == [found]
    said = "| hanoi-2x3 | lifted | 60 | 10 | 3 random steps | 2 of 2 | 2 of 2 |"
    assert said in action_curves.table([found])


# Slow: it trains, learns and plans. The parts are tested with the models.
@pytest.mark.slow
def test_measurements_of_bits_and_of_what_shakes() -> None:
    bits = action_bits.Setting("hanoi-2x3", 60, 10, 3, 12, 24, training=200, problems=1)
    found = {"setting": asdict(bits)} | action_bits.measure(bits)
    assert [one["valid"] for one in found["lifted_plans"]] == [True]
    assert found["recovered"] == 1.0
    shaking = action_measured.Setting("hanoi-4x3", 400, 20, 3, shaking=0.05, problems=1)
    found = action_measured.measure(shaking)
    assert (found["sizes"], found["valid"]) == ({"disk": 4, "peg": 3}, 1)
