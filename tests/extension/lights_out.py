"""Lights Out: pressing a light turns it and its neighbours on or off. A world in one file.

Run ``setwise train lights_out.py --keep all``, then ``setwise plan --world lights_out.py
lights-out``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise import Bernoulli, Categorical, Features
from setwise.experiments import Config, Experiment, Schedule
from setwise.experiments.networks import Autoencoder
from setwise.experiments.tasks import WorldData
from setwise.worlds import World

SIZE = 3
CELL = torch.arange(SIZE * SIZE)
X, Y = CELL % SIZE, CELL // SIZE
# What each press turns over: the light itself and those beside, above and below.
PRESS = ((X[:, None] - X).abs() + (Y[:, None] - Y).abs() <= 1).long()


class LightsOut(World):
    """Nine lights on a board of 3 x 3; a configuration is which of them are on."""

    kind = "lights-out"
    name = "lights-out-3x3"
    features = Features(Categorical(SIZE), Categorical(SIZE), Bernoulli(1))  # x, y, on

    def states(self) -> Tensor:
        return torch.arange(2 ** len(CELL)).unsqueeze(-1) >> CELL & 1

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        after = configurations.unsqueeze(-2) ^ PRESS
        return after, torch.ones(after.shape[:-1], dtype=torch.bool)

    def objects(self, configurations: Tensor) -> Tensor:
        places = torch.cat([torch.eye(SIZE)[X], torch.eye(SIZE)[Y]], dim=-1)
        places = places.expand(*configurations.shape, 2 * SIZE)
        return torch.cat([places, configurations.unsqueeze(-1)], dim=-1)

    def start(self) -> Tensor:
        """Problems lead to all lights out."""
        return torch.zeros_like(CELL)

    def describe(self, configuration: Tensor) -> str:
        lights = "".join(".*"[on] for on in configuration.tolist())
        return " / ".join(lights[SIZE * row : SIZE * (row + 1)] for row in range(SIZE))


def config(scenario: str, loss: str, seed: int) -> Config:
    """Plans lead through all states, so that all are trained on."""
    return Config(
        experiment="lights-out",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=True,
        shuffle_target=True,
        data=WorldData(of="lights-out", states=512, train=512),
        network=Autoencoder((128, 128), (128,), 24, 128, dropout=0.0, start_at_prototypes=True),
        schedule=Schedule(epochs=50, batch=64, learning_rate=3e-3, cooldown=0.5, evaluations=5),
    )


EXPERIMENT = Experiment(
    name="lights-out",
    title="States of Lights Out",
    config=config,
    scenarios={"all": "all 512 states"},
    losses=("set_cross_entropy", "assignment_cross_entropy"),
    seeds=1,
)
