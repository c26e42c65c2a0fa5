"""Rendered scenes: our losses beside the recipes of Slot Attention and iDSPN, on one data set.

    setwise train studies/rendered_scenes.py                    # draws 22,000 scenes; wants a GPU
    setwise train studies/rendered_scenes.py --scenarios idspn  # one network only

A cell is a network and a loss. Recipes and losses are those of ``detection.py``, behind a larger
backbone; how many epochs there are, the rate of each network and the scale of places, which
``rendered_rates.py`` looks for, stand in ``rendered_scenes.json``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from setwise.cli.user_file import run_file
from setwise.experiments import Config, Experiment, NetworkConfig, Schedule
from setwise.experiments.tasks import ScenesData

STUDY = run_file("study", Path(__file__).with_name("detection.py"))
SETTINGS = Path(__file__).with_suffix(".json")
CHOSEN: dict[str, Any] = json.loads(SETTINGS.read_text())
EPOCHS, RATES = CHOSEN["epochs"], CHOSEN["rates"]
# Trained on as they are, pictures are soon known by heart.
DATA: ScenesData = ScenesData(renderer="torch", scale=CHOSEN["scale"], varied=True)
WIDEST = 0.4  # the scale of places at first, where it falls
# Behind all of them: three residual stages, so that there are 16 x 16 regions of 8 pixels. Of
# regions of 16 pixels one often holds two small objects.
_WIDTH, _CONVOLUTIONS, _BLOCKS = 128, (32, 64, 128), 1


@dataclass(frozen=True)
class CompiledPredictor(STUDY.PublishedPredictor):  # type: ignore[misc, name-defined]
    """A recipe whose step is compiled: a minute that pays in a training of so many steps."""

    kind: ClassVar[str] = "compiled predictor"
    compiled: ClassVar[bool] = True


def _behind(kind: type[Any], recipe: str, outputs: int) -> NetworkConfig:
    network: NetworkConfig = kind(recipe, outputs, _WIDTH, _CONVOLUTIONS, _BLOCKS)
    return network


# The network of a scenario, and the share of training over which its rate rises.
NETWORKS: dict[str, tuple[NetworkConfig, float]] = {
    "queries": (_behind(CompiledPredictor, "detr", 20), 0.05),
    "slot-attention": (_behind(STUDY.PublishedPredictor, "slot attention", 10), 0.1),
    "idspn": (_behind(STUDY.PublishedPredictor, "idspn", 10), 0.05),
}
SCENARIOS = {
    "queries": "queries with the loss on every layer, 20 outputs",
    "slot-attention": "Slot Attention, 10 outputs",
    "idspn": "iDSPN, 10 outputs",
}
CELLS = (
    ("queries", "plain_cross_entropy"),
    ("slot-attention", "huber_loss"),
    ("idspn", "huber_loss"),
)
PUBLISHED = ("huber_loss",)  # which its authors give all of its weight throughout


def config(scenario: str, loss: str, seed: int) -> Config:
    """A network with a loss; places count little at first, but in losses of published recipes."""
    network, warmup = NETWORKS[scenario]
    return Config(
        experiment="rendered-scenes",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=DATA,
        network=network,
        schedule=Schedule(
            epochs=EPOCHS,
            batch=64,
            learning_rate=RATES[scenario],
            cooldown=0.5,
            warmup=warmup,
            blur=1.0 if loss in PUBLISHED else WIDEST / DATA.scale,
            evaluations=10,
        ),
    )


EXPERIMENT = Experiment(
    name="rendered-scenes",
    title="Rendered scenes: our losses, and published recipes",
    config=config,
    scenarios=SCENARIOS,
    losses=tuple(dict.fromkeys(loss for _, loss in CELLS)),
    seeds=3,
    metric="ap_0.125",
    metric_label="average precision within a distance of 0.125",
    curves_of="a thousand pictures, one in eleven of them held out",
    command="setwise train studies/rendered_scenes.py",
    cells=CELLS,
)
