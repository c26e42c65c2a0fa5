"""Rendered scenes: our losses beside the recipes of Slot Attention and iDSPN, on one data set.

    setwise train studies/rendered_scenes.py                         # draws 22,000; wants a GPU
    setwise train studies/rendered_scenes.py --scenarios idspn-fine  # one network only

A cell is a network and a loss. Recipes and losses are those of ``detection.py``, behind either of
two larger backbones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from setwise.cli.user_file import run_file
from setwise.experiments import Config, Experiment, Schedule
from setwise.experiments.tasks import ScenesData

STUDY = run_file("study", Path(__file__).with_name("detection.py"))
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
    warmup: float  # the share of training over which the rate rises
    # Whether places count little at first; the authors of others give them all of their weight.
    scaled: bool = False


RECIPES = {
    "queries": Recipe(
        label="queries with the loss on every layer, 20 outputs",
        decoder="detr",
        outputs=20,
        warmup=0.05,
        scaled=True,
    ),
    "slot-attention": Recipe("Slot Attention, 10 outputs", "slot attention", 10, warmup=0.1),
    "idspn": Recipe("iDSPN, 10 outputs", "idspn", 10, warmup=0.05),
}
# Of scenarios: the recipe and the backbone.
SCENARIOS = {
    "queries": ("queries", "coarse"),
    "slot-attention": ("slot-attention", "coarse"),
    "queries-fine": ("queries", "fine"),
    "slot-attention-fine": ("slot-attention", "fine"),
    "idspn-fine": ("idspn", "fine"),
}


@dataclass(frozen=True)
class Chosen:
    """What a cell is trained with."""

    epochs: int
    rate: float
    scale: float  # of places; Huber's loss does not look at it


CELLS = {
    ("queries", "plain_cross_entropy"): Chosen(60, 1e-3, 0.05),
    ("slot-attention", "huber_loss"): Chosen(60, 5e-4, 0.05),
    ("queries-fine", "bethe_likelihood"): Chosen(40, 5e-4, 0.1),
    ("slot-attention-fine", "huber_loss"): Chosen(40, 5e-4, 0.1),
    ("idspn-fine", "huber_loss"): Chosen(40, 1e-3, 0.1),
}


def config(scenario: str, loss: str, seed: int) -> Config:
    """A recipe behind a backbone, with what was chosen for it and the loss."""
    name, backbone = SCENARIOS[scenario]
    recipe, chosen = RECIPES[name], CELLS[scenario, loss]
    return Config(
        experiment="rendered-scenes",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=replace(DATA, scale=chosen.scale),
        network=STUDY.PublishedPredictor(
            recipe.decoder, recipe.outputs, _WIDTH, *BACKBONES[backbone]
        ),
        schedule=Schedule(
            epochs=chosen.epochs,
            batch=64,
            learning_rate=chosen.rate,
            cooldown=0.5,
            warmup=recipe.warmup,
            blur=WIDEST / chosen.scale if recipe.scaled else 1.0,
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
    cells=tuple(CELLS),
    remark=(
        "Networks behind fine regions were trained nine at once on one GPU, others three together, "
        "so seconds do not tell what one takes alone."
    ),
)
