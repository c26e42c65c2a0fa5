"""The renderers beside each other in docs/renderers.md: the tables are that of the record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tools import renderers
from tools.photographs import GAP

from repository import ROOT
from setwise.cli.user_file import run_file

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


def test_rendered_scenes_are_those_of_the_records(tmp_path: Path) -> None:
    experiment = run_file("experiment", ROOT / "studies" / "rendered_scenes.py").EXPERIMENT
    experiment.sheet.write(tmp_path)
    lines = []
    for loss, best in (("plain_cross_entropy", 0.5), ("huber_loss", 0.25)):
        for seed in range(3):
            [config] = experiment.configs([seed], ["idspn"], [loss])
            metrics = dict.fromkeys(renderers.LIMITS, best + 0.1 * seed)
            told = {"scenario": "idspn", "loss": loss, "metrics": metrics, "seed": seed}
            lines.append({"schema": 2, "run": config.identity, "config": config.as_dict()} | told)
    path = tmp_path / f"{renderers.NAME}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    said, *_, first, second = renderers.learned(tmp_path).splitlines()
    assert said == (
        "Each was trained for 60 epochs of 20,000 pictures, mirrored by chance and lit otherwise "
        "each time: 18,720 steps of 64."
    )
    assert first.replace("|", " ").split()[-7:] == ["3", *["0.600"] * 6]
    assert second.replace("|", " ").split()[-7:] == ["3", *["0.350"] * 6]
