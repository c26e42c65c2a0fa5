"""An experiment that is nobody's but a user's: a loss, data and a network that the library does
not know, from two files in a folder to a table, pictures and a section of the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser

from browser import badly_drawn, faint, opened, overflowing, unnamed
from pages import read_cells
from setwise import cli
from setwise.experiments.experiment import LossStyle, Reference, Sheet
from setwise.report.page.colours import themed

GREEN = "#00aa33"
SHEET = Sheet(
    name="my experiment",
    title="Sorting: numbers that come back in any order",
    scenarios={"few": "few numbers", "many": "many numbers, $10 each"},
    losses={
        "squared_chamfer": LossStyle("C²", "squared Chamfer distance", GREEN),
        "ordered_cross_entropy": LossStyle("H", "cross entropy", "#7f7f7f"),
    },
    metric="error",
    metric_label="mean error",
    better="lower",
    decimals=3,
    command="setwise train sorting.py",
)


def record(loss: str, scenario: str, seed: int, error: float) -> dict[str, Any]:
    told = {"experiment": SHEET.name, "scenario": scenario, "loss": loss, "seed": seed}
    kinds = {part: {"kind": f"a {part} of my own"} for part in ("data", "network", "schedule")}
    return {
        "schema": 2,
        "run": f"{loss}-{scenario}-{seed}",
        **told,
        "metrics": {"error": error},
        "history": {"epoch": [1, 2], "error": [2 * error, error]},
        "config": told | kinds,
        "members": 1,
        "seconds": 3.0,
        "environment": {"hardware": "my machine", "torch": "2"},
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    SHEET.write(folder)
    errors = {"squared_chamfer": 0.125, "ordered_cross_entropy": 2.5}
    runs = [
        record(loss, scenario, seed, error * (seed + 1))
        for loss, error in errors.items()
        for scenario in SHEET.scenarios
        for seed in range(3)
        if (loss, scenario) != ("ordered_cross_entropy", "many")
    ]
    lines = [json.dumps(run) + "\n" for run in runs]
    (folder / f"{SHEET.name}.jsonl").write_text("".join(lines))
    return folder


def test_its_table(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tables", "--results", str(results)]) == 0
    out = capsys.readouterr().out
    assert "│ C² │ 0.125 0.250 0.375 (3) │ 0.125 0.250 0.375 (3) │" in out
    assert "│ H  │ 2.500 5.000 7.500 (3) │ no runs               │" in out
    assert "best median worst (runs): mean error." in out
    assert "paper" not in out
    assert cli.main(["tables", "--results", str(results), "--json"]) == 0
    cells = json.loads(capsys.readouterr().out)["my experiment"]
    assert cells[0] == {
        **{"loss": "squared_chamfer", "scenario": "few", "reference": None},
        **{"best": 0.125, "median": 0.25, "worst": 0.375, "runs": 3},
    }


def test_its_pictures(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the colour that its sheet has for the loss."""
    command = ["tables", "--results", str(results), "--plot", str(tmp_path / "drawn")]
    assert cli.main([*command, "--experiment", "my experiment"]) == 0
    drawn = sorted((tmp_path / "drawn").iterdir())
    assert [path.name for path in drawn] == ["my experiment-cells.png", "my experiment-curves.png"]
    for path in drawn:
        with Image.open(path) as picture:
            colours = np.asarray(picture.convert("RGB")).reshape(-1, 3).astype(int)
        assert (np.abs(colours - [0x00, 0xAA, 0x33]).max(axis=1) < 20).any(), path.name
    assert "my experiment" not in capsys.readouterr().err


def written(results: Path) -> Path:
    path = results.parent / "report.html"
    folders = ["--results", str(results), "--benchmarks", str(results)]
    assert cli.main(["report", *folders, "--output", str(path)]) == 0
    return path


def test_its_section(results: Path) -> None:
    text = written(results).read_text()
    assert "Cells: 3 of 4 recorded; 1 not recorded yet." in text
    assert f'fill="{themed(GREEN)}"' in text
    assert f'stroke="{themed(GREEN)}"' in text
    assert "setwise train sorting.py --results runs/again" in text
    assert "paper" not in text.replace('class="paper"', "").replace(".cell .paper", "")


@pytest.mark.browser
def test_its_section_in_a_browser(chromium: Browser, results: Path) -> None:
    with opened(chromium, written(results), scheme="dark") as tab:
        assert [*overflowing(tab), *faint(tab), *unnamed(tab), *badly_drawn(tab)] == []
        cells = read_cells(tab, "my-experiment")
    assert cells["few numbers", "C²"] == "0.125 median 0.250, worst 0.375 3 runs"
    assert cells["many numbers, $10 each", "H"] == "not recorded yet"


def test_numbers_of_any_source_stand_beside_it(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The paper is one reference among others."""
    values = {"squared_chamfer": {"few": 0.13, "many": 0.11}}
    reference = Reference("Smith et al.", values, caption="Table 7 of Smith et al.")
    Sheet(**vars(SHEET) | {"reference": reference}).write(results)
    text = written(results).read_text()
    assert "Table 7 of Smith et al." in text
    told = "Cells: 1 of 4 hold; 1 behind Smith et al.; 1 not recorded yet; 1 not in Smith et al."
    assert told in text
    assert "Smith et al. 0.13" in text
    assert cli.main(["tables", "--results", str(results)]) == 0
    assert "│ C² │ 0.13 | 0.125 0.250 0.375 (3) │" in capsys.readouterr().out


def test_before_it_is_trained(results: Path) -> None:
    (results / f"{SHEET.name}.jsonl").unlink()
    text = written(results).read_text()
    assert "Not recorded yet. It is trained by" in text
    assert "setwise train sorting.py</code>" in text
