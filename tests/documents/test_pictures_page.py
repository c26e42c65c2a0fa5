"""The figures of what networks found show what is recorded, in docs and on the page of reports."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from inspect import unwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from pictures import differing_pixels
from repository import ROOT
from setwise.data.scenes import REACH, WORDS, classes_of, one_hots
from setwise.experiments import store
from setwise.render.silhouette import boxes
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


def test_right_pictures_have_no_ring_and_wrong_ones_have(figure: Any, recorded: Any) -> None:
    shown, each = recorded["shown"], figure["EACH"]
    assert len(shown) == 2 * each
    for number, column in enumerate(shown):
        assert any(figure["mistakes"](column)) == (number >= each)


def test_the_example_says_what_was_recorded(recorded: Any) -> None:
    found = recorded["average precision"]
    said = ", ".join(f"{value:.3f} {name}" for name, value in found.items())
    assert f"average precision {said}\n" in (ROOT / "examples" / "detect.py").read_text()
    assert found["within 0.1"] >= 0.9


def test_elements_are_told_as_they_are(figure: Any, recorded: Any) -> None:
    told = recorded["shown"][0]["objects"][0]
    assert figure["_told"](figure["_element"](told)) == told


@pytest.fixture(scope="module")
def scenes() -> Any:
    return runpy.run_path(str(FIGURES / "scene_detections.py"))


@pytest.fixture(scope="module")
def found(scenes: Any) -> Any:
    return json.loads(scenes["RECORD"].read_text())


def test_scenes_are_those_of_the_record(scenes: Any, found: Any, tmp_path: Path) -> None:
    told = scenes["for_report"](found)
    assert told.items() <= found.items()
    assert [said.split(":")[0] for said in told["captions"]] == ["right"] * 5 + ["wrong"] * 5
    again, committed = tmp_path / "again.jpg", scenes["FIGURE"]
    scenes["draw"](again)
    assert differing_pixels(again, committed) == 0, "run python docs/figures/scene_detections.py"
    [section] = detections_sections(ROOT / "results")
    folders = len(list((ROOT / "results").glob("*/detections.json")))
    assert section.body.count("data:image/png") == folders * len(told["captions"])
    assert told["captions"][5] in section.body


def test_the_network_of_the_scenes_is_the_median_one(found: Any) -> None:
    runs = store.read(ROOT / "results" / "rendered-scenes.jsonl")
    ours = [one for one in runs if one["scenario"] == "queries-fine"]
    middle = sorted(ours, key=lambda one: one["metrics"]["heldout_ap"])[len(ours) // 2]
    assert found["run"] == middle["run"]
    page = (ROOT / "docs" / "renderers.md").read_text(encoding="utf-8")
    assert "the run that is the median of three without a limit of distance" in page


def test_objects_of_scenes_are_told_as_they_are(scenes: Any, found: Any) -> None:
    """And rings are where they are seen."""
    column = found["shown"][scenes["EACH"]]
    told = column["objects"][0]
    classes = torch.tensor(classes_of(dict(zip(WORDS, told, strict=False))))
    element = torch.cat([one_hots(classes), torch.tensor(told[len(WORDS) :]) / REACH])
    assert scenes["_told"](element) == told
    scene = scenes["SETTINGS"].scene(column["scene"])
    for told, seen, box in zip(
        column["objects"], scene.blocks, boxes(scene, 128, 128), strict=True
    ):
        placed = scenes["_placed"](told)
        assert placed.material == seen.material
        assert replace(placed.block, rotation=0.0) == replace(seen.block, rotation=0.0)
        assert placed.location == pytest.approx(seen.location, abs=1e-3)
        x, y, radius = scenes["ring"](scene, told)
        left, top, right, bottom = map(float, box)
        assert x - radius <= left + 2
        assert right - 2 <= x + radius
        assert y - radius <= top + 2
        assert bottom - 2 <= y + radius
        assert radius < right - left + 4


def test_a_network_that_learned_from_other_pictures_is_refused(
    scenes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = scenes["record"]
    [config] = scenes["STUDY"].EXPERIMENT.configs([0], ["queries-fine"], ["bethe_likelihood"])
    other = replace(config, data=replace(config.data, seed=1))
    monkeypatch.setitem(unwrap(record).__globals__, "read_config", lambda path: other)
    with pytest.raises(ValueError, match=r"net: expected a network of setwise train .*seed=1"):
        record(Path("net"))


# Slow: a path tracer draws. What it draws is told in the first tier, above.
@pytest.mark.slow
def test_what_was_found_in_a_scene_is_drawn_again(scenes: Any, found: Any, tmp_path: Path) -> None:
    number = scenes["EACH"]  # the first that is wrong, with rings
    scenes["beside"](*scenes["pair"](found["shown"][number])).save(tmp_path / "again.png")
    committed = scenes["RECORD"].with_name(f"{number:02}.png")
    assert differing_pixels(tmp_path / "again.png", committed) < 0.001


# Slow: a path tracer draws. What is drawn is tested in test_tabletop.py.
@pytest.mark.slow
def test_a_scene_is_drawn_as_in_the_figure(tmp_path: Path) -> None:
    scenes = runpy.run_path(str(FIGURES / "scenes.py"))
    again, committed = tmp_path / "again.png", tmp_path / "committed.png"
    Image.fromarray(scenes["picture"](0)).save(again)
    Image.open(scenes["FIGURE"]).crop((0, 0, 128, 128)).save(committed)
    assert differing_pixels(again, committed) < 0.01, "run python docs/figures/scenes.py"
