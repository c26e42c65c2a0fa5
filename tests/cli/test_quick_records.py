"""A quick try leaves its records among the runs, where tables and the page find them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from setwise import cli
from setwise.experiments.recipes import EXPERIMENTS
from setwise.experiments.records import read
from tiny_experiments import puzzle_config

Captured = pytest.CaptureFixture[str]


def test_a_quick_preset_writes_nothing_into_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    quick = EXPERIMENTS["table1-quick"]
    tiny = replace(
        quick,
        scenarios={"4": quick.scenarios["4"]},
        losses=("set_cross_entropy",),
        seeds=1,
        config=lambda scenario, loss, seed: replace(
            puzzle_config(scenario, "SH", seed), experiment=quick.name
        ),
    )
    monkeypatch.setitem(EXPERIMENTS._entries, quick.name, tiny)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "table1", "--preset", "quick", "--device", "cpu"]) == 0
    assert not Path("results").exists()
    [record] = read(Path("runs/records/table1-quick.jsonl"))
    capsys.readouterr()
    assert cli.main(["tables", "--json"]) == 0
    [cell] = json.loads(capsys.readouterr().out)["table1-quick"]
    assert cell["best"] == record["metrics"][tiny.metric]
    assert cli.main(["report", "--output", "page.html"]) == 0
    assert "experiment-table1-quick" in Path("page.html").read_text()
    # Whoever names a folder gets that one alone.
    Path("elsewhere").mkdir()
    capsys.readouterr()
    assert cli.main(["tables", "--results", "elsewhere"]) == 1
    assert "no runs of any experiment are recorded in elsewhere" in capsys.readouterr().err
    command = ["reproduce", "table1", "--preset", "quick", "--device", "cpu"]
    assert cli.main([*command, "--results", "elsewhere"]) == 0
    assert len(read(Path("elsewhere/table1-quick.jsonl"))) == 1
