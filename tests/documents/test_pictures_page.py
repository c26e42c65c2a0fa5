"""The figure of docs/pictures.md shows what is recorded, and the record is that of the example."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from pictures import differing_pixels
from repository import ROOT
from setwise.report.page.detections import detections_sections

FIGURES = ROOT / "docs" / "figures"


@pytest.fixture(scope="module")
def figure() -> Any:
    return runpy.run_path(str(FIGURES / "detections.py"))


@pytest.fixture(scope="module")
def recorded(figure: Any) -> Any:
    return json.loads(figure["RECORD"].read_text())


def test_the_figure_is_drawn_from_the_record(figure: Any, tmp_path: Path) -> None:
    again = tmp_path / "again.png"
    figure["draw"](again)
    committed = FIGURES / figure["FIGURE"]
    assert differing_pixels(again, committed) == 0, "run python docs/figures/detections.py"


def test_the_report_shows_the_same(figure: Any, recorded: Any, tmp_path: Path) -> None:
    told = figure["for_report"](recorded)
    assert told.items() <= recorded.items()
    assert [said.split(":")[0] for said in told["captions"]] == ["right"] * 5 + ["wrong"] * 5
    for number, picture in enumerate(figure["pictures"]()):
        picture.save(tmp_path / "again.png")
        committed = figure["RECORD"].with_name(f"{number:02}.png")
        assert differing_pixels(tmp_path / "again.png", committed) == 0
    [section] = detections_sections(ROOT / "results")
    assert told["captions"][5] in section.body
    assert section.body.count("data:image/png") == len(told["captions"])


def test_right_pictures_have_no_ring_and_wrong_ones_have(figure: Any, recorded: Any) -> None:
    shown, each = recorded["shown"], figure["EACH"]
    assert len(shown) == 2 * each
    for number, column in enumerate(shown):
        missed, wrong = figure["unmatched"](column["objects"], column["found"])
        assert bool(missed or wrong) == (number >= each)


def test_the_example_says_what_was_recorded(recorded: Any) -> None:
    found = recorded["average precision"]
    said = ", ".join(f"{value:.3f} {name}" for name, value in found.items())
    assert f"average precision {said}\n" in (ROOT / "examples" / "detect.py").read_text()
    assert found["within 0.1"] >= 0.9


def test_elements_are_told_as_they_are(figure: Any, recorded: Any) -> None:
    told = recorded["shown"][0]["objects"][0]
    assert figure["_told"](figure["_element"](told)) == told


# Slow: a path tracer draws. What is drawn is tested in test_tabletop.py.
@pytest.mark.slow
def test_a_scene_is_drawn_as_in_the_figure(tmp_path: Path) -> None:
    scenes = runpy.run_path(str(FIGURES / "scenes.py"))
    again, committed = tmp_path / "again.png", tmp_path / "committed.png"
    Image.fromarray(scenes["picture"](0)).save(again)
    Image.open(scenes["FIGURE"]).crop((0, 0, 128, 128)).save(committed)
    assert differing_pixels(again, committed) < 0.01, "run python docs/figures/scenes.py"
