"""Training the networks of the demonstration, one a loss, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from setwise import environment
from setwise.experiments.config import Config
from setwise.experiments.evaluate import RunResult, TrainingProgress
from setwise.experiments.recipes import demo
from setwise.experiments.recipes.paper import SH
from setwise.experiments.run import ensemble_identity
from setwise.experiments.saved_networks import save_network
from setwise.experiments.train import Training
from setwise.planning.learned import LearnedSpace, open_space

SAVE_EVERY = 5.0  # seconds: all of it takes a minute or two
Watch = Callable[[Sequence[Config], TrainingProgress], None]


@dataclass(frozen=True)
class Learned:
    """What became of each loss."""

    results: dict[str, RunResult]
    spaces: dict[str, LearnedSpace]
    seconds: float
    environment: dict[str, Any]

    @property
    def states(self) -> int:
        """How many there are, all of them trained on."""
        return len(self.spaces[SH].world.states())

    def right(self, loss: str) -> int:
        """How many states are put out again, with nothing missing and nothing else."""
        return round(self.results[loss].metrics["exact"] * self.states)


def configs_of(seed: int) -> list[Config]:
    return [demo.config(loss, seed) for loss in demo.LOSSES]


def checkpoint_of(folder: Path, seed: int) -> Path:
    """Where a training that was stopped waits to go on."""
    return folder / f"{ensemble_identity(configs_of(seed))}.ckpt"


def learn(folder: Path, seed: int, watch: Watch, stop: Callable[[], bool]) -> Learned:
    """Train, or go on with a training that was stopped; the networks are kept in the folder.

    Once ``stop`` says so, the training is saved and `StoppedError` raised; see `Training`. One that
    has ended stays at `checkpoint_of`, for whoever fails to use it; remove it after that.
    """
    training = Training(configs_of(seed), "cpu", checkpoint_of(folder, seed), SAVE_EVERY)
    found = training.run(lambda progress: watch(training.configs, progress), stop)
    made_with = environment.describe(torch.device("cpu"), threads=training.threads)
    by_loss = {result.config.loss: result for result in found}
    spaces = {}
    for index, config in enumerate(training.configs):
        path = folder / f"{config.loss}.safetensors"
        save_network(path, training, index)
        spaces[config.loss] = open_space(path)
    return Learned(by_loss, spaces, training.seconds, made_with)
