"""A task of one's own with no counterpart in the paper: bags from their counts.

Run ``setwise train own_experiment.py``, then ``setwise report``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch.nn.functional import one_hot

import setwise as sw
from setwise.experiments import Config, DataConfig, Experiment, Schedule, Task
from setwise.experiments.networks import RuleLearner

CPU = torch.device("cpu")


@dataclass(frozen=True)
class BagsData(DataConfig):
    """Bags of ``size`` digits, read as how often each digit is in the bag."""

    kind: ClassVar[str] = "bags"
    digits: int = 6
    size: int = 3
    bags: int = 60
    train: int = 50
    seed: int = 0

    def load(self, folder: Path = Path(), device: torch.device = CPU) -> Task:
        generator = torch.Generator().manual_seed(self.seed)
        numbers = torch.randint(self.digits, (self.bags, self.size), generator=generator)
        targets = one_hot(numbers, self.digits).float()
        features = sw.Features(sw.Categorical(self.digits))
        return Task(targets.sum(1), targets, self.train, features)


def config(scenario: str, loss: str, seed: int) -> Config:
    return Config(
        experiment="bags",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=True,
        data=BagsData(),
        network=RuleLearner(width=32, hidden_layers=1, dropout=0.0),
        schedule=Schedule(epochs=60, batch=10, learning_rate=2e-2, cooldown=0.5, evaluations=3),
    )


EXPERIMENT = Experiment(
    name="bags",
    title="Bags of digits from their counts",
    config=config,
    scenarios={"three": "three of six digits"},
    losses=("ordered_cross_entropy", "assignment_cross_entropy"),
    seeds=2,
    metric="exact",
    metric_label="share of the bags that come out exactly",
)
