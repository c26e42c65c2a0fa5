"""Rendered scenes: our losses beside the recipes of Slot Attention and iDSPN, on one data set.

    setwise train studies/rendered_scenes.py                    # draws 22,000 scenes; wants a GPU
    setwise train studies/rendered_scenes.py --scenarios idspn  # some cells only

A cell is a network and a loss. Recipes and losses are those of ``detection.py``, behind a larger
backbone; how many epochs there are, the rate of each network and the scale of places, which
``rendered_rates.py`` looks for, stand in ``rendered_scenes.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from setwise.cli.user_file import run_file
from setwise.experiments import Config, Experiment, NetworkConfig, Schedule
from setwise.experiments.networks import Predictor
from setwise.experiments.tasks import ScenesData

STUDY = run_file("study", Path(__file__).with_name("detection.py"))
SETTINGS = Path(__file__).with_suffix(".json")
CHOSEN: dict[str, Any] = json.loads(SETTINGS.read_text())
EPOCHS, RATES = CHOSEN["epochs"], CHOSEN["rates"]
# Trained on as they are, pictures are soon known by heart.
DATA: ScenesData = ScenesData(renderer="torch", scale=CHOSEN["scale"], varied=True)
WIDEST = 0.4  # the scale of places at first, where it falls
_WIDTH = 128
# Of backbones: what is said of them, their convolutions, and the residual blocks after each.
BACKBONES = {
    "": ("", (32, 64, 128, 128), 0),
    "-residual": (", residual blocks", (32, 64, 128, 128), 1),
    "-fine": (", residual blocks and four times the regions", (32, 64, 128), 2),
}
# Of scenarios: what they are called, the decoder and its outputs, the name of the rate and the
# share over which that rises.
RECIPES = {
    "queries": ("queries with the loss on every layer, 20 outputs", "detr", 20, "queries", 0.05),
    "slot-attention": (
        *("Slot Attention, 10 outputs", "slot attention", 10),
        *("slot-attention", 0.1),
    ),
    "idspn": ("iDSPN, 10 outputs", "idspn", 10, "idspn", 0.05),
}
NETWORKS: dict[str, tuple[NetworkConfig, str, float]] = {
    "regions": (Predictor("regions", 64, _WIDTH, BACKBONES[""][1]), "regions", 0.05)
}
SCENARIOS = {"regions": "an output for each region"}
for _end, (_said, _convolutions, _blocks) in BACKBONES.items():
    for _name, (_label, _decoder, _outputs, _rate, _warmup) in RECIPES.items():
        _network = STUDY.PublishedPredictor(_decoder, _outputs, _WIDTH, _convolutions, _blocks)
        NETWORKS[_name + _end] = (_network, _rate, _warmup)
        SCENARIOS[_name + _end] = _label + _said
# In the order in which they are trained: what is to be compared comes first.
CELLS = (
    ("queries", "plain_cross_entropy"),
    ("slot-attention", "huber_loss"),
    ("idspn", "huber_loss"),
    ("queries", "bethe_likelihood"),
    ("queries", "detr_loss"),
    ("regions", "plain_cross_entropy"),
    ("queries-residual", "plain_cross_entropy"),
    ("slot-attention-residual", "huber_loss"),
    ("idspn-residual", "huber_loss"),
    ("queries-fine", "plain_cross_entropy"),
    ("slot-attention-fine", "huber_loss"),
    ("idspn-fine", "huber_loss"),
)
PUBLISHED = ("huber_loss", "detr_loss")  # which their authors give all of their weight throughout


def config(scenario: str, loss: str, seed: int) -> Config:
    """A network with a loss; places count little at first, but in losses of published recipes."""
    network, rate_of, warmup = NETWORKS[scenario]
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
            learning_rate=RATES[rate_of],
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
