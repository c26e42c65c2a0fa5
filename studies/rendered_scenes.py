"""Rendered scenes: our losses beside the recipes of Slot Attention and iDSPN, on one data set.

    setwise train studies/rendered_scenes.py                    # draws 22,000 scenes; wants a GPU
    setwise train studies/rendered_scenes.py --scenarios idspn  # one network only

A cell is a network and a loss. Recipes and losses are those of ``detection.py``, behind a larger
backbone; how many epochs there are, the rate of each network and the scale of places, which
``rendered_rates.py`` looks for, stand in ``rendered_scenes.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from setwise.cli.user_file import run_file
from setwise.experiments import Config, Experiment, NetworkConfig, Schedule
from setwise.experiments.tasks import ScenesData

STUDY = run_file("study", Path(__file__).with_name("detection.py"))
SETTINGS = Path(__file__).with_suffix(".json")
CHOSEN: dict[str, dict[str, Any]] = json.loads(SETTINGS.read_text())
# Trained on as they are, pictures are soon known by heart.
DATA: ScenesData = ScenesData(renderer="torch", varied=True)
WIDEST = 0.4  # the scale of places at first, where it falls
_WIDTH = 128


@dataclass(frozen=True)
class CompiledPredictor(STUDY.PublishedPredictor):  # type: ignore[misc, name-defined]
    """A recipe whose step is compiled: a minute that pays in a training of so many steps."""

    kind: ClassVar[str] = "compiled predictor"
    compiled: ClassVar[bool] = True


# Of backbones: the convolutions, and the residual blocks after each. Of 8 x 8 regions one often
# holds two small objects; the fine one has 16 x 16.
BACKBONES: dict[str, tuple[tuple[int, ...], int]] = {
    "coarse": ((32, 64, 128, 128), 0),
    "fine": ((32, 64, 128), 1),
}
# Of recipes: what they are called, the decoder and its outputs, the loss, and the share of training
# over which the rate rises.
RECIPES = {
    "queries": (
        *("queries with the loss on every layer, 20 outputs", "detr", 20),
        *("plain_cross_entropy", 0.05),
    ),
    "slot-attention": ("Slot Attention, 10 outputs", "slot attention", 10, "huber_loss", 0.1),
    "idspn": ("iDSPN, 10 outputs", "idspn", 10, "huber_loss", 0.05),
}


@dataclass(frozen=True)
class Scenario:
    """A recipe behind a backbone."""

    recipe: str
    backbone: str

    @property
    def label(self) -> str:
        return RECIPES[self.recipe][0] + (", fine regions" if self.backbone == "fine" else "")

    @property
    def loss(self) -> str:
        return RECIPES[self.recipe][3]

    @property
    def network(self) -> NetworkConfig:
        _, decoder, outputs, *_ = RECIPES[self.recipe]
        fast = self.recipe == "queries" and self.backbone == "fine"
        kind = CompiledPredictor if fast else STUDY.PublishedPredictor
        network: NetworkConfig = kind(decoder, outputs, _WIDTH, *BACKBONES[self.backbone])
        return network

    @property
    def rate(self) -> float:
        rate: float = CHOSEN[self.backbone]["rates"][self.recipe]
        return rate


SCENARIOS = {
    recipe + ("-fine" if backbone == "fine" else ""): Scenario(recipe, backbone)
    for backbone in BACKBONES
    for recipe in RECIPES
}
CELLS = tuple((name, scenario.loss) for name, scenario in SCENARIOS.items())
PUBLISHED = ("huber_loss",)  # which its authors give all of its weight throughout


def config(scenario: str, loss: str, seed: int) -> Config:
    """A network with a loss; places count little at first, but in losses of published recipes."""
    of = SCENARIOS[scenario]
    scale: float = CHOSEN[of.backbone]["scale"]
    return Config(
        experiment="rendered-scenes",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=replace(DATA, scale=scale),
        network=of.network,
        schedule=Schedule(
            epochs=CHOSEN[of.backbone]["epochs"],
            batch=64,
            learning_rate=of.rate,
            cooldown=0.5,
            warmup=RECIPES[of.recipe][4],
            blur=1.0 if loss in PUBLISHED else WIDEST / scale,
            evaluations=10,
        ),
    )


EXPERIMENT = Experiment(
    name="rendered-scenes",
    title="Rendered scenes: our losses, and published recipes",
    config=config,
    scenarios={name: scenario.label for name, scenario in SCENARIOS.items()},
    losses=tuple(dict.fromkeys(loss for _, loss in CELLS)),
    seeds=3,
    metric="ap_0.125",
    metric_label="average precision within a distance of 0.125",
    curves_of="a thousand pictures, one in eleven of them held out",
    command="setwise train studies/rendered_scenes.py",
    cells=CELLS,
)
