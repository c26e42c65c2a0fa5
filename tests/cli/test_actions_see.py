"""``setwise actions see``, and what the other commands make of its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lit_blocks import lit_archive
from setwise import cli
from setwise.planning.actions import SeenSymbols

Captured = pytest.CaptureFixture[str]


# Slow: it learns and plans. test_seen_symbols.py does the same without files.
@pytest.mark.slow
def test_from_pictures_to_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    lit_archive().write("states.npz")
    see = ["actions", "see", "states.npz", "-o", "seen.jsonl", "--transitions"]
    files = ["--symbols", "kept.safetensors", "--problem", "problem.json"]
    assert cli.main([*see, "250", *files]) == 0
    said = capsys.readouterr().out
    assert "looks      6 of 3 things; 100.00% of those that a step left alone" in said
    assert "places     3 columns" in said
    assert "recorded   250 transitions in seen.jsonl" in said
    assert SeenSymbols.load("kept.safetensors").looks.count == 6
    assert len(json.loads(Path("problem.json").read_text())["init"]) == 3 + 3
    plan = ["actions", "plan", "seen.jsonl", "problem.json", "--only-present", "--searcher", "ff"]
    assert cli.main(plan) == 0
    said = capsys.readouterr().out
    assert "2 schemas from 250 transitions of 250" in said
    assert "outcome    solved" in said
    assert cli.main([*see, "9999"]) == 2
    assert capsys.readouterr().err == "transitions: the archive has 2592, got 9999\n"
    assert cli.main([*see, "250", "--symbols", "seen.jsonl"]) == 2
    assert capsys.readouterr().err == "--output, --symbols: expected different files\n"
    assert cli.main(["actions", "see", "none.npz", "-o", "seen.jsonl"]) == 2
    assert "ARCHIVE: expected a file, none.npz is not there" in capsys.readouterr().err
