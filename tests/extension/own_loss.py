"""A loss of one's own, trained beside the library's: run ``setwise train own_loss.py``."""

from __future__ import annotations

from typing import Any

from torch import Tensor

import setwise as sw
from setwise.experiments import Config, Experiment, Schedule
from setwise.experiments.networks import Autoencoder
from setwise.experiments.tasks import PuzzleData
from setwise.losses import register_loss


def halfway(input: Tensor, target: Tensor, features: sw.Features, **options: Any) -> Tensor:
    """Between the soft and the hard choice of an output for each target."""
    soft = sw.set_cross_entropy(input, target, features, **options)
    hard = sw.set_average(input, target, features, **options) * target.shape[-2]
    return (soft + hard) / 2


register_loss(halfway, symbol="½H", label="halfway", colour="#8c564b")


def config(scenario: str, loss: str, seed: int) -> Config:
    return Config(
        experiment="halfway",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=True,
        shuffle_target=scenario == "shuffled",
        data=PuzzleData(width=2, height=2, states=24, train=20),
        network=Autoencoder((16,), (16,), latent=8, decoder_width=16, dropout=0.0),
        schedule=Schedule(epochs=20, batch=10, learning_rate=1e-2, evaluations=4),
    )


EXPERIMENT = Experiment(
    name="halfway",
    title="A loss between two others",
    config=config,
    scenarios={"ordered": "targets in order", "shuffled": "targets in random order"},
    losses=("set_cross_entropy", "halfway", "assignment_cross_entropy"),
    seeds=2,
)
