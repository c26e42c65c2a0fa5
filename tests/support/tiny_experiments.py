"""Small configs, and how their trainings are run and compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from setwise.experiments import checkpoint
from setwise.experiments.config import Config, Schedule
from setwise.experiments.networks import Autoencoder, RuleLearner
from setwise.experiments.tasks import PuzzleData, RulesData
from setwise.experiments.train import RunResult, Training, TrainingProgress, build_network
from setwise.losses.table import find_loss

# By their symbols, which `puzzle_config` and `rules_config` take for the names.
SYMBOLS = ("H", "SH", "A1H", "H1H")
NETWORK = Autoencoder(element_widths=(16,), widths=(16,), latent=8, decoder_width=16, dropout=0.2)
SILENT = replace(NETWORK, dropout=0.0, noise=False)
PUZZLE = PuzzleData(width=2, height=2, states=24, train=20)
RULES = RulesData(n=2, train=20, test=10)
TASK = PUZZLE.load()
WHOLE = replace(TASK, train=24)


def puzzle_config(
    scenario: str = "4", loss: str = "SH", seed: int = 0, *, silent: bool = False, **schedule: Any
) -> Config:
    """A small network on the puzzle of four cells, which an epoch shows in two batches."""
    options = {"epochs": 4, "batch": 10, "learning_rate": 1e-2, "cooldown": 0.5, "evaluations": 4}
    return Config(
        experiment="tiny",
        scenario=scenario,
        loss=find_loss(loss).name,
        seed=seed,
        shuffle_input=scenario in ("2", "4"),
        shuffle_target=scenario in ("3", "4"),
        data=PUZZLE,
        network=SILENT if silent else NETWORK,
        schedule=Schedule(**(options | schedule)),
        precision="highest",
    )


def rules_config(
    scenario: str, loss: str, seed: int, *, silent: bool = True, **schedule: Any
) -> Config:
    network = RuleLearner(width=16, dropout=0.0 if silent else 0.2)
    base = puzzle_config(scenario, loss, seed, **schedule)
    return replace(base, data=RULES, network=network)


def weights_of(training: Training) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in training.ensemble.tensors().items()}


def assert_same_bits(ours: tuple[Training, Any], others: tuple[Training, Any]) -> None:
    assert ours[1] == others[1]
    tensors = weights_of(others[0])
    assert all(tensor.equal(tensors[name]) for name, tensor in weights_of(ours[0]).items())


def trained(configs: Sequence[Config], **options: Any) -> tuple[Training, list[RunResult]]:
    training = Training(configs, "cpu", **options)
    return training, training.run()


def raise_at(
    epoch: int, error: type[BaseException] = KeyboardInterrupt
) -> Callable[[TrainingProgress], None]:
    def watch(progress: TrainingProgress) -> None:
        if progress.epoch == epoch:
            raise error

    return watch


def everyone(
    config: Callable[..., Config], *, silent: bool = True, **schedule: Any
) -> list[Config]:
    """All four losses, two scenarios and two seeds."""
    return [
        config(scenario, loss, seed, silent=silent, **schedule)
        for loss in SYMBOLS
        for scenario in ("1", "4")
        for seed in (0, 1)
    ]


def distance(ours: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    """Of floating-point numbers; the others count batches."""
    assert ours.keys() == others.keys()
    floats = [name for name, tensor in ours.items() if tensor.is_floating_point()]
    return math.sqrt(sum((ours[name] - others[name]).square().sum().item() for name in floats))


def assert_equals_alone(configs: list[Config], tolerance: float) -> None:
    """Losses within a share of themselves, weights within a share of the way they have come."""
    together, results = trained(configs)
    assert len(results) == len(configs) == 16
    for k, ours in enumerate(results):
        training, (alone,) = trained([ours.config])
        assert ours.config == together.configs[k] == alone.config
        close = partial(pytest.approx, rel=tolerance)
        assert ours.history["loss"] == close(alone.history["loss"])
        assert ours.metrics["loss"] == close(alone.metrics["loss"])
        if tolerance < 1e-3:  # no output is so near to its threshold
            assert {**ours.history, "loss": 0} == {**alone.history, "loss": 0}
            assert {**ours.metrics, "loss": 0} == {**alone.metrics, "loss": 0}
        start = build_network(ours.config, ours.config.data.load()).state_dict()
        reached = training.ensemble.member(0)
        come = distance(reached, start)
        assert come > 1e-3
        assert distance(together.ensemble.member(k), reached) < tolerance * come


def state_of(path: Path) -> int:
    """The epoch that a checkpoint has reached."""
    return checkpoint.read(path)[1]["epoch"]
