"""Rendered scenes: our losses beside the recipes of Slot Attention and iDSPN, on one data set.

    setwise train studies/rendered_scenes.py                    # draws 22,000 scenes; wants a GPU
    setwise train studies/rendered_scenes.py --scenarios idspn  # one network only

A cell is a network and a loss. Recipes and losses are those of ``detection.py``, behind either of
two larger backbones; how many epochs there are with each, the rate of each network and the scale of
places, which ``rendered_rates.py`` looks for, stand in ``rendered_scenes.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from setwise.cli.user_file import run_file
from setwise.experiments import Config, Experiment, Schedule
from setwise.experiments.tasks import ScenesData

STUDY = run_file("study", Path(__file__).with_name("detection.py"))
SETTINGS = Path(__file__).with_suffix(".json")
CHOSEN: dict[str, dict[str, Any]] = json.loads(SETTINGS.read_text())
# Trained on as they are, pictures are soon known by heart.
DATA: ScenesData = ScenesData(renderer="torch", varied=True)
WIDEST = 0.4  # the scale of places at first, where it falls
_WIDTH = 128
# Of backbones: the convolutions, and the residual blocks after each. The coarse
# one leaves 8 x 8 regions, of which one may hold two small objects; the fine one 16 x 16.
BACKBONES: dict[str, tuple[tuple[int, ...], int]] = {
    "coarse": ((32, 64, 128, 128), 0),
    "fine": ((32, 64, 128), 1),
}


@dataclass(frozen=True)
class Recipe:
    """A decoder of ``detection.py``, and how it is trained."""

    label: str
    decoder: str
    outputs: int
    loss: str
    warmup: float  # the share of training over which the rate rises
    # Whether places count little at first; the authors of others give them all of their weight.
    scaled: bool = False

    def blur(self, scale: float) -> float:
        """How many times as wide as their scale places are at first."""
        return WIDEST / scale if self.scaled else 1.0


RECIPES = {
    "queries": Recipe(
        label="queries with the loss on every layer, 20 outputs",
        decoder="detr",
        outputs=20,
        loss="plain_cross_entropy",
        warmup=0.05,
        scaled=True,
    ),
    "slot-attention": Recipe("Slot Attention, 10 outputs", "slot attention", 10, "huber_loss", 0.1),
    "idspn": Recipe("iDSPN, 10 outputs", "idspn", 10, "huber_loss", 0.05),
}
# Of scenarios: the recipe and the backbone.
SCENARIOS = {name: (name, "coarse") for name in RECIPES}
SCENARIOS |= {f"{name}-fine": (name, "fine") for name in RECIPES}
CELLS = tuple((scenario, RECIPES[name].loss) for scenario, (name, _) in SCENARIOS.items())


def config(scenario: str, loss: str, seed: int) -> Config:
    """A recipe behind a backbone, with what was chosen for the two."""
    name, backbone = SCENARIOS[scenario]
    recipe, chosen = RECIPES[name], CHOSEN[backbone]
    return Config(
        experiment="rendered-scenes",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=replace(DATA, scale=chosen["scale"]),
        network=STUDY.PublishedPredictor(
            recipe.decoder, recipe.outputs, _WIDTH, *BACKBONES[backbone]
        ),
        schedule=Schedule(
            epochs=chosen["epochs"],
            batch=64,
            learning_rate=chosen["rates"][name],
            cooldown=0.5,
            warmup=recipe.warmup,
            blur=recipe.blur(chosen["scale"]),
            evaluations=10,
        ),
    )


EXPERIMENT = Experiment(
    name="rendered-scenes",
    title="Rendered scenes: our losses, and published recipes",
    config=config,
    scenarios={
        scenario: RECIPES[name].label + (", fine regions" if backbone == "fine" else "")
        for scenario, (name, backbone) in SCENARIOS.items()
    },
    losses=tuple(dict.fromkeys(loss for _, loss in CELLS)),
    seeds=3,
    metric="ap_0.125",
    metric_label="average precision within a distance of 0.125",
    curves_of="a thousand pictures, one in eleven of them held out",
    command="setwise train studies/rendered_scenes.py",
    remark=STUDY.EARLIER,
    cells=CELLS,
)
