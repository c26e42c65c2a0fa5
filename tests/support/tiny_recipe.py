"""An experiment that is trained in a second, for whole commands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from setwise.experiments.config import Config, Schedule
from setwise.experiments.experiment import Experiment
from setwise.experiments.networks import Autoencoder
from setwise.experiments.recipes import EXPERIMENTS, table1
from setwise.experiments.tasks import PuzzleData

EPOCHS = 6


def tiny(scenario: str, loss: str, seed: int) -> Config:
    """The 2x2 puzzle and a network of a few units."""
    return replace(
        table1.paper(scenario, loss, seed),
        experiment="table1-tiny",
        data=PuzzleData(width=2, height=2, states=24, train=20),
        network=Autoencoder(element_widths=(8,), widths=(8,), latent=4, decoder_width=8),
        schedule=Schedule(epochs=EPOCHS, batch=10, evaluations=EPOCHS),
    )


# With the published numbers of the table, though they are of another setting, to see them shown.
EXPERIMENT = replace(
    table1.PAPER,
    name="table1-tiny",
    config=tiny,
    scenarios={name: table1.SCENARIOS[name] for name in ("1", "3")},
    seeds=2,
    command="setwise reproduce table1 --preset tiny",
)


# Another of its size, in a file of one's own.
OWN = """
from dataclasses import replace
from setwise.experiments import Experiment
from tiny_recipe import tiny


def config(scenario, loss, seed):
    return replace(tiny(scenario, loss, seed), experiment="own")


OWN = Experiment(
    name="own", title="Own", config=config, scenarios={"1": "", "3": ""},
    losses=("set_cross_entropy",), seeds=2,
)
"""


def make_known(patch: pytest.MonkeyPatch, experiment: Experiment) -> None:
    """Let ``setwise reproduce`` find an experiment, in the place of one of its name if need be."""
    patch.setitem(EXPERIMENTS._entries, experiment.name, experiment)
