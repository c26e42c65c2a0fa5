"""What it saves to train networks together: the time that one would take alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from setwise import environment
from setwise.experiments import store
from setwise.experiments.config import Config
from setwise.experiments.context import THREADS
from setwise.experiments.tasks.task import DATA
from setwise.experiments.train import Training

EPOCHS = 20  # that are timed, after as many that are not


def record_cost(
    ensemble: Sequence[Config],
    seconds: float,
    device: str | torch.device,
    results: Path,
    commit: str | None = None,
    data: Path = DATA,
    threads: int = THREADS,
) -> dict[str, Any]:
    """Write down, in ``results/cost.jsonl``, what an ensemble that was just trained has saved."""
    cost = {
        "experiment": ensemble[0].experiment,
        **cost_of(ensemble, seconds, device, data, threads),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment.describe(torch.device(device), commit, threads),
    }
    store.append(results / store.COSTS, [cost])
    return cost


def cost_of(
    ensemble: Sequence[Config],
    seconds: float,
    device: str | torch.device,
    data: Path = DATA,
    threads: int = THREADS,
) -> dict[str, Any]:
    """The cost of networks that took ``seconds`` together, and how much faster than one by one.

    One network is timed twice, now and on this device, with as many threads, by the code that
    trains ensembles: with its step ``compiled`` and replayed as theirs is, and ``plain``, step by
    step. The time to compile is not counted to its disadvantage, while ``seconds`` contain it. On a
    CPU the two are the same. The losses differ little in their cost; the network is one with set
    cross entropy, if there is one.
    """
    timed = min(
        ensemble,
        key=lambda config: (config.loss != "set_cross_entropy", config.scenario, config.seed),
    )
    epochs = timed.schedule.epochs
    alone = {}
    for name, plain in (("plain", True), ("compiled", False)):
        training = Training([timed], device, plain=plain, data=data, threads=threads)
        alone[name] = training.seconds_per_epoch(EPOCHS) * epochs
    return {
        "networks": len(ensemble),
        "seconds": seconds,
        "timed": timed.identity,
        "seconds_alone": alone,
        "times_faster": {name: len(ensemble) * each / seconds for name, each in alone.items()},
    }
