"""The renderers beside each other in docs/renderers.md: the tables are that of the record."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tools import renderers
from tools.photographs import GAP

from repository import ROOT
from setwise.cli.user_file import run_file
from setwise.experiments import store

pytestmark = pytest.mark.slow


def test_the_page_is_that_of_the_record() -> None:
    text = renderers.PAGE.read_text(encoding="utf-8")
    assert renderers.written(text) == text, "run python -m tools.renderers write"


def test_what_the_page_says_of_them_is_so() -> None:
    """That torch is much nearer to Mitsuba than a sketch, and faster than Mitsuba."""
    told = json.loads(renderers.RECORD.read_text(encoding="utf-8"))["of"]
    assert told["torch"]["decibels"] > told["sketch"]["decibels"] + 5
    assert told["torch"]["seconds"] < told["mitsuba"]["seconds"] / 2


def test_the_third_row_of_the_figure_is_drawn_again() -> None:
    with Image.open(renderers.FIGURE) as image:
        figure = np.asarray(image.convert("RGB")).astype(int)
    side = renderers.TABLE.width
    top = 2 * (side + GAP)
    scene = renderers.TABLE.scene(0)
    [picture], _ = renderers.drawn("torch", [scene], renderers.TABLE.samples)
    # The figure is a JPEG.
    assert np.abs(figure[top : top + side, :side] - picture).mean() < 3


def test_what_a_gpu_draws_is_told(tmp_path: Path) -> None:
    path = tmp_path / "drawing.json"
    assert "has not been measured yet" in renderers.on_a_gpu(path)
    size = {"width": 128, "height": 64, "samples": 32}
    where = {"hardware": "some GPU", "torch": "2.8.0", "commit": "0123456789abcdef"}
    path.write_text(json.dumps({"pictures": 4096, "seconds": 12.0, **size, "environment": where}))
    said = " ".join(renderers.on_a_gpu(path).split())
    assert said.startswith("some GPU draws 20,480 pictures of 128 x 64 pixels, 32 rays each, in a")
    assert "4,096 in 12 s" in said
    assert said.endswith("torch 2.8.0, commit 0123456789ab.")


def test_what_the_page_says_of_older_records_is_so() -> None:
    """Of set cross entropy behind fine regions, and of iDSPN behind coarse ones."""
    text = " ".join(renderers.PAGE.read_text(encoding="utf-8").split())
    results = renderers.ROOT / "results"
    scenes = f"{renderers.NAME}.jsonl"
    fine = store.read(results / "older" / "compiled" / scenes)
    assert {(one["scenario"], one["loss"]) for one in fine} == {
        ("queries-fine", "plain_cross_entropy")
    }
    [epochs] = {one["config"]["schedule"]["epochs"] for one in fine}
    assert f"behind fine regions as well, for {epochs} epochs" in text
    coarse = [one for one in store.read(results / scenes) if one["scenario"] == "queries"]
    assert {one["loss"] for one in coarse} == {"plain_cross_entropy"}
    for name in (*renderers.LIMITS, "train"):
        found, others = (median(one["metrics"][name] for one in runs) for runs in (fine, coarse))
        assert found < others

    earlier = store.read(results / "older" / "implicit" / scenes)
    assert {one["scenario"] for one in earlier} == {"idspn"}
    assert "iDSPN stands behind the latter alone" in text
    assert "idspn" not in renderers.STUDY.SCENARIOS


def test_what_the_page_says_of_the_table_is_so() -> None:
    text = " ".join(renderers.PAGE.read_text(encoding="utf-8").split())
    runs = store.read(renderers.ROOT / "results" / f"{renderers.NAME}.jsonl")
    assert {(one["scenario"], one["loss"]) for one in runs} == set(renderers.STUDY.CELLS)

    def of(scenario: str, metric: str) -> list[float]:
        return sorted(one["metrics"][metric] for one in runs if one["scenario"] == scenario)

    assert "queries with the Bethe likelihood and iDSPN find about as much, but one of its" in text
    ours, (lost, *others) = of("queries-fine", "heldout_ap"), of("idspn-fine", "heldout_ap")
    assert lost < 0.05
    assert "three seeds found next to nothing" in text
    assert max(ours[0], others[0]) < min(ours[-1], others[-1])  # they overlap

    assert "within 0.125 either recipe finds less than a tenth of what queries find" in text
    near = {scenario: median(of(scenario, "heldout")) for scenario in renderers.STUDY.SCENARIOS}
    queries = {scenario for scenario in near if scenario.startswith("queries")}
    assert max(near[one] for one in near.keys() - queries) < min(near[one] for one in queries) / 10
    assert "there coarse regions with SH are ahead of fine ones with the likelihood" in text
    assert near["queries"] > near["queries-fine"]


def test_how_many_pictures_are_right_is_told(tmp_path: Path) -> None:
    (tmp_path / "scenes").mkdir()
    path = tmp_path / "scenes" / "detections.json"
    path.write_text(json.dumps({"right": 3, "judged": 8, "within": 0.5}))
    said = " ".join(renderers.found(tmp_path).split())
    assert said.startswith("In 3 of the first 8 held-out pictures")
    assert "within 0.5 of its place" in said


def test_what_the_page_says_of_settings_is_so() -> None:
    """Rates are half of those on sprites, but for queries with fine regions; scales fall there."""
    study = renderers.STUDY
    for config in study.EXPERIMENT.configs(seeds=[0]):
        ours = config.scenario.startswith("queries")
        widest = config.data.scale * config.schedule.blur
        assert widest == pytest.approx(study.WIDEST if ours else config.data.scale)
    epochs = {(cell[0].endswith("-fine"), one.epochs) for cell, one in study.CELLS.items()}
    assert {3 * n if fine else 2 * n for fine, n in epochs} == {120}  # two thirds
    sprites = json.loads(study.STUDY.SETTINGS.read_text())["rates"]
    for (scenario, _), chosen in study.CELLS.items():
        recipe, _ = study.SCENARIOS[scenario]
        half = sprites[{"queries": "detr"}.get(recipe, recipe)] / 2
        assert (chosen.rate == half) == (scenario != "queries-fine")


def test_rendered_scenes_are_those_of_the_records(tmp_path: Path) -> None:
    study = run_file("experiment", ROOT / "studies" / "rendered_scenes.py")
    study.EXPERIMENT.sheet.write(tmp_path)

    def learned(*trained: tuple[str, str, float, dict[str, Any]]) -> list[str]:
        lines = []
        for scenario, loss, best, changed in trained:
            for seed in range(3):
                [config] = study.EXPERIMENT.configs([seed], [scenario], [loss])
                config = replace(config, schedule=replace(config.schedule, **changed))
                metrics = dict.fromkeys(renderers.LIMITS, best + 0.1 * seed)
                told = {"scenario": scenario, "loss": loss, "metrics": metrics, "seed": seed}
                own = {"run": config.identity, "config": config.as_dict()}
                lines.append({"schema": 2} | own | told)
        path = tmp_path / f"{renderers.NAME}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        said, table = renderers.learned(tmp_path).split("\n\n")
        return [" ".join(said.split()), *table.splitlines()[2:]]

    alike = {"epochs": 60}
    cells = list(study.CELLS)
    every = [(*cell, 0.5 - 0.05 * place, alike) for place, cell in enumerate(cells)]
    said, first, second, *_ = learned(*every)
    assert said == (
        "Each was trained for 60 epochs of 20,000 pictures, mirrored by chance and lit otherwise "
        "each time: 18,720 steps of 64."
    )
    assert first.replace("|", " ").split()[-7:] == ["3", *["0.600"] * 6]
    assert second.replace("|", " ").split()[-7:] == ["3", *["0.550"] * 6]
    scenario, loss = cells[-1]
    sheet = study.EXPERIMENT.sheet
    last = f"{sheet.label(scenario)} with {sheet.losses[loss].symbol}"
    said, *_ = learned(*every[:-1])
    assert said.endswith(f"steps of 64. Not trained yet: {last}.")
    said, *_ = learned(*every[:-1], (*every[-1][:-1], {"epochs": 2}))
    assert "Not all were trained alike. For" in said
    assert said.endswith(f" 624 steps of 64: {last}.")
    with pytest.raises(ValueError, match=r"differ in schedule.epochs .*; move the old records"):
        learned(every[0], (*every[0][:-1], {"epochs": 2}))
