"""The measurements behind the table of pictures in docs/action-models.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import action_records, seen_blocks

from lit_blocks import WORLD, lit_archive


def test_what_the_page_promises_was_measured() -> None:
    """27 of 30 from 2,000 transitions; and where the model finds a plan, it is mostly right."""
    records = {
        one["setting"]["transitions"]: one for one in action_records.read(seen_blocks.RECORDS)
    }
    whole = records[2000]
    assert len(whole["outcomes"]) == 30
    assert sum(one["valid"] for one in whole["outcomes"]) >= 27
    assert whole["looks"] == 8
    assert whole["agreement"] > 0.999
    assert whole["agreement_elsewhere"] > 0.999


# Slow: it learns and plans. test_seen_symbols.py does both with the same pictures.
@pytest.mark.slow
def test_a_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = seen_blocks.Setting(250, blocks=WORLD.blocks, stacks=WORLD.stacks, support=1)
    monkeypatch.setattr(seen_blocks, "RECORDS", tmp_path / "seen.jsonl")
    monkeypatch.setattr(seen_blocks, "SETTINGS", [small])
    monkeypatch.setattr(seen_blocks, "PROBLEMS", 1)
    path = tmp_path / "states.npz"
    lit_archive().write(path)
    seen_blocks.record(path)
    [found] = action_records.read(seen_blocks.RECORDS)
    assert [one["valid"] for one in found["outcomes"]] == [True] * 3
    assert (found["looks"], found["agreement"], found["agreement_elsewhere"]) == (6, 1.0, 1.0)
    seen_blocks.record(path)  # what is recorded is not measured again
    assert action_records.read(seen_blocks.RECORDS) == [found]
    said = "| 250 transitions | 6 | 100.00% | 100.00% | 1 of 1 | 1 of 1 | 1 of 1 | 3 of 3 |"
    assert said in seen_blocks.table([found])
