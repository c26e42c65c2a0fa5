"""Which loss when: every loss on every kind of set, small enough that all of it is trained.

``setwise train studies/losses.py`` trains the study, ``--losses`` and ``--scenarios`` a part of it.
Two losses are here with annealing, too: set cross entropy with a temperature that falls from 5 to
1, the likelihood with an exclusivity that rises from 0 to 1.

Legend: S examples, N elements, F features; K networks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

import setwise as sw
from setwise.experiments import Config, DataConfig, Experiment, NetworkConfig, Schedule, Task
from setwise.experiments.networks import Autoencoder, RuleLearner
from setwise.experiments.tasks import (
    MultisetData,
    NumberingData,
    PuzzleData,
    RulesData,
    WorldData,
)
from setwise.experiments.tasks.task import CPU, DATA
from setwise.losses.table import register_loss


def annealed_cross_entropy(
    input: Tensor, target: Tensor, features: sw.Features, *, temperature: Any = 1.0, **options: Any
) -> Tensor:
    return sw.set_cross_entropy(input, target, features, temperature=temperature, **options)


def annealed_likelihood(
    input: Tensor, target: Tensor, features: sw.Features, *, exclusivity: Any = None, **options: Any
) -> Tensor:
    return sw.set_likelihood(input, target, features, exclusivity=exclusivity, **options)


register_loss(
    annealed_cross_entropy,
    symbol="SH, annealed",
    colour="#f4a6b3",
    options=("temperature",),
    capturable=True,
)
register_loss(
    annealed_likelihood,
    symbol="LH, annealed",
    colour="#c9b3de",
    options=("exclusivity",),
    capturable=True,
)
ANNEALED = ("annealed_cross_entropy", "annealed_likelihood")


@dataclass(frozen=True)
class RandomSetsData(DataConfig):
    """Sets of coin flips, to be memorised: all of them are trained on."""

    kind: ClassVar[str] = "random sets"
    elements: int = 8
    bits: int = 8
    states: int = 200
    seed: int = 0

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        generator = torch.Generator().manual_seed(self.seed)
        shape = (self.states, self.elements, self.bits)
        sets = torch.randint(2, shape, generator=generator).float()
        return Task(sets, sets, self.states, sw.Features(sw.Bernoulli(self.bits)))


@dataclass(frozen=True)
class CloudsData(DataConfig):
    """Points of ellipses, drawn at random, from the place, the axes and the angle of each."""

    kind: ClassVar[str] = "clouds"
    points: int = 64
    states: int = 1000
    train: int = 900
    scale: float = 0.05
    seed: int = 0

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        generator = torch.Generator().manual_seed(self.seed)
        centre, axes, turn = (
            torch.rand(self.states, width, generator=generator) for width in (2, 2, 1)
        )
        around = 2 * torch.pi * torch.rand(self.states, self.points, generator=generator)
        x = (0.2 + 0.8 * axes[:, :1]) * around.cos()
        y = (0.2 + 0.8 * axes[:, 1:]) * around.sin()
        cos, sin = (torch.pi * turn).cos(), (torch.pi * turn).sin()
        points = torch.stack([cos * x - sin * y, sin * x + cos * y], dim=-1)
        targets = points + (centre - 0.5).unsqueeze(1)
        inputs = torch.cat([centre, axes, cos, sin], dim=-1)
        features = sw.Features(sw.Gaussian(2, scale=self.scale))
        return Task(inputs, targets, self.train, features, measure=Near())


@dataclass(frozen=True)
class Near:
    """A cloud is right if nine in ten points of either side have one of the other near by."""

    metric: str = "exact"
    curve_examples: int | None = None
    learned: str | None = None
    distance: float = 0.15
    share: float = 0.9

    def __call__(
        self, logits: Tensor, finite: Tensor, targets: Tensor, features: sw.Features
    ) -> dict[str, Tensor]:
        near = torch.cdist(targets.expand(len(logits), *targets.shape), logits) < self.distance
        found, apt = near.any(-1).float().mean(-1), near.any(-2).float().mean(-1)
        right = (torch.minimum(found, apt) >= self.share).float()
        return {"exact": right.masked_fill(~finite, 0.0)}

    def total(self, values: Tensor) -> Tensor:
        return values.mean(dim=-1)

    def to(self, device: torch.device) -> Near:
        return self


@dataclass(frozen=True)
class SmallAutoencoder(Autoencoder):
    """An autoencoder that is trained before a compiler would be ready."""

    kind: ClassVar[str] = "small autoencoder"
    compiled: ClassVar[bool] = False


@dataclass(frozen=True)
class Scenario:
    """A task of the study, and what it is trained with."""

    meaning: str
    data: DataConfig
    network: NetworkConfig
    schedule: Schedule


PUZZLE = PuzzleData(width=2, height=3, states=720, train=600)
MISSING = replace(PUZZLE, variable=True)
READER = SmallAutoencoder((128, 128), (128,), latent=32, decoder_width=128, dropout=0.0)
WRITER = RuleLearner(width=256, dropout=0.0)
RECONSTRUCTION = Schedule(epochs=200, batch=100, learning_rate=2e-3, cooldown=0.2, evaluations=10)
PRODUCTION = Schedule(epochs=80, batch=100, learning_rate=2e-3, cooldown=0.5, evaluations=10)
COUNTING = replace(PRODUCTION, epochs=60, batch=150)
BAGS = MultisetData(least=5, most=5, states=2000, train=1800)
MULTISETS = MultisetData(most=6, states=4000, train=3600)

STUDY = {
    "puzzle": Scenario("2 x 3 puzzle", PUZZLE, READER, RECONSTRUCTION),
    "puzzle-categorical": Scenario(
        "2 x 3 puzzle, categorical",
        replace(PUZZLE, scored_as="categorical"),
        READER,
        RECONSTRUCTION,
    ),
    "missing-placed": Scenario("missing objects, placed dummies", MISSING, READER, RECONSTRUCTION),
    "missing-counted": Scenario(
        "missing objects, counted dummies",
        replace(MISSING, dummies="counted"),
        READER,
        RECONSTRUCTION,
    ),
    "missing-presence": Scenario(
        "missing objects, presence",
        replace(MISSING, dummies="none"),
        READER,
        RECONSTRUCTION,
    ),
    "missing-prototypes": Scenario(
        "missing objects, presence, from prototypes",
        replace(MISSING, dummies="none"),
        replace(READER, start_at_prototypes=True),
        RECONSTRUCTION,
    ),
    "rules": Scenario(
        "rules of three terms",
        RulesData(n=3),
        RuleLearner(dropout=0.2),
        Schedule(epochs=100, batch=150, learning_rate=3e-3, cooldown=0.2, evaluations=10),
    ),
    "multisets-presence": Scenario("multisets, presence", MULTISETS, WRITER, COUNTING),
    "multisets-dummies": Scenario(
        "multisets, dummies", replace(MULTISETS, absent="dummies"), WRITER, COUNTING
    ),
    "bags": Scenario("bags of five digits", BAGS, WRITER, PRODUCTION),
    "numbering": Scenario(
        "numbering within classes", NumberingData(), WRITER, replace(PRODUCTION, epochs=300)
    ),
    "lights": Scenario(
        "Lights Out in 24 bits",
        WorldData(of="lights", size=(3, 3), states=512, train=512),
        replace(READER, latent=24, start_at_prototypes=True),
        Schedule(epochs=150, batch=64, learning_rate=3e-3, cooldown=0.5, evaluations=10),
    ),
    **{
        f"random-{n}x{d}": Scenario(
            f"{n} random elements of {d} bits",
            RandomSetsData(elements=n, bits=d),
            SmallAutoencoder((256, 256), (256,), latent=64, decoder_width=512, dropout=0.0),
            Schedule(epochs=250, batch=50, learning_rate=1e-3, cooldown=0.5, evaluations=10),
        )
        for n in (2, 8, 32)
        for d in (2, 8, 32)
    },
    "clouds": Scenario("clouds of 64 points", CloudsData(), WRITER, PRODUCTION),
}


def config(scenario: str, loss: str, seed: int) -> Config:
    task = STUDY[scenario]
    schedule = task.schedule
    if loss in ANNEALED:
        schedule = replace(schedule, loss_temperature=5.0, exclusivity_until=0.7)
    return Config(
        experiment="losses",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=True,
        shuffle_target=True,
        data=task.data,
        network=task.network,
        schedule=schedule,
    )


EXPERIMENT = Experiment(
    name="losses",
    title="Which loss when: every loss on every kind of set",
    config=config,
    scenarios={name: task.meaning for name, task in STUDY.items()},
    losses=(
        "ordered_cross_entropy",
        "set_cross_entropy",
        "annealed_cross_entropy",
        "set_average",
        "hausdorff",
        "assignment_cross_entropy",
        "stable_matching_cross_entropy",
        "transport_cross_entropy",
        "set_likelihood",
        "annealed_likelihood",
    ),
    metric="exact",
    metric_label="share of all sets that come out right",
    command="setwise train studies/losses.py",
    remark="The exclusivity of LH, annealed rises in training, from 0 to 1.",
)
