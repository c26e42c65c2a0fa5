"""The measurements behind the table of pictures in docs/action-models.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools import action_records, seen_blocks

from lit_blocks import WORLD, lit_archive


def test_what_the_page_promises_was_measured() -> None:
    """27 of 30 from 2,000 transitions, whichever are drawn; and looks are named rightly."""
    records = action_records.read(seen_blocks.RECORDS)
    whole = [one for one in records if one["setting"]["transitions"] == seen_blocks.LARGEST]
    assert {one["setting"]["seed"] for one in whole} == set(range(seen_blocks.DRAWS))
    for one in whole:
        assert len(one["outcomes"]) == 30
        assert sum(plan["valid"] for plan in one["outcomes"]) >= 27
        assert one["looks"] == 8
        assert min(one["agreement"], one["agreement_elsewhere"]) > 0.99  # of pictures with noise


# Slow: it learns and plans. test_seen_symbols.py does both with the same pictures.
@pytest.mark.slow
def test_a_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(seen_blocks, "RECORDS", tmp_path / "seen.jsonl")
    small = {"LARGEST": 500, "DRAWS": 1, "FEWER": (), "PROBLEMS": 1, "SUPPORT": 1}
    for name, value in small.items():
        monkeypatch.setattr(seen_blocks, name, value)
    path = tmp_path / "states.npz"
    world = {"blocks": WORLD.blocks, "stacks": WORLD.stacks}
    drawn = {"environment": {"world": world}, "renderer": "light", "samples": 1, "seed": 0}
    (tmp_path / "settings.json").write_text(json.dumps(drawn))
    lit_archive().write(path)
    seen_blocks.record(path)
    [found] = action_records.read(seen_blocks.RECORDS)
    assert [one["valid"] for one in found["outcomes"]] == [True] * 3
    assert (found["looks"], found["agreement"], found["agreement_elsewhere"]) == (6, 1.0, 1.0)
    seen_blocks.record(path)  # what is recorded is not measured again
    assert action_records.read(seen_blocks.RECORDS) == [found]
    said = "| 500 transitions | 1 | 6 | 100.00% | 100.00% | 1 of 1 | 1 of 1 | 1 of 1 | 3 of 3 |"
    assert said in seen_blocks.table([found])
