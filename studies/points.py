"""The clouds of ``losses.py`` again: with the Chamfer distance, and with Gaussians of other scales.

``setwise train studies/points.py`` trains it. The set average of ``losses.py`` looks from targets
to outputs alone; with points it is mostly used in both directions, which is the Chamfer distance.
Set cross entropy in turn depends on the scale that points are taken to be uncertain by.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

import setwise as sw
from setwise.cli.user_file import run_file
from setwise.experiments import Config, Experiment
from setwise.losses.table import register_loss

STUDY = run_file("study", Path(__file__).with_name("losses.py"))
# The first is that of losses.py, about the distance from a point to the next on an ellipse; the
# last is about the size of an ellipse.
SCALES = {"0.05": 0.05, "0.2": 0.2, "0.8": 0.8}


def chamfer_average(input: Tensor, target: Tensor, features: sw.Features, **options: Any) -> Tensor:
    return sw.set_average(input, target, features, directed=False, **options)


register_loss(
    chamfer_average,
    symbol="A1H, both ways",
    label="Chamfer distance",
    colour="#6baed6",
    capturable=True,
)


def config(scenario: str, loss: str, seed: int) -> Config:
    base: Config = STUDY.config("clouds", loss, seed)
    data = STUDY.CloudsData(scale=SCALES[scenario])
    return replace(base, experiment="points", scenario=scenario, data=data)


EXPERIMENT = Experiment(
    name="points",
    title="Clouds of 64 points: both directions, and the scale",
    config=config,
    scenarios={name: f"scale {name}" for name in SCALES},
    losses=("set_cross_entropy", "chamfer_average"),
    metric="exact",
    metric_label="share of all clouds that come out right",
    command="setwise train studies/points.py",
)
