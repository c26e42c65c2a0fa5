"""From configs to records on disk: what is missing is trained, what is there is kept."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from setwise import environment
from setwise.experiments import checkpoint, store
from setwise.experiments.blocks import archive_of
from setwise.experiments.config import BlocksData, Config, FactsData, config_from
from setwise.experiments.patches import require_autoencoder
from setwise.experiments.task import DATA, Reconstruction, Task, build_network, load_task
from setwise.experiments.train import Progress, Result, Training
from setwise.models import EquivariantRuleLearner, SetAutoencoder, SetDecoder

Network = SetAutoencoder | SetDecoder | EquivariantRuleLearner
Watch = Callable[[Training, Progress], None]
# Of the results of an ensemble, the identities of those whose networks are to be kept.
Keep = Callable[[Sequence[Result]], Collection[str]]


def reproduce(
    configs: Sequence[Config],
    device: str | torch.device,
    results: Path,
    runs: Path | None = None,
    *,
    commit: str | None = None,
    watch: Watch = lambda training, progress: None,
    keep: Keep = lambda results: (),
    stop: Callable[[], bool] = lambda: False,
    data: Path = DATA,
    save_every: float = 300.0,
) -> int:
    """Train every config that has no record yet, and return how many were trained.

    Records go to ``results/<table>.jsonl``. With ``runs``, a folder, an interrupted training goes
    on where it was, and the networks of results that ``keep`` names are saved there as
    ``<table>/<identity>.safetensors``. Once ``stop`` says so, the training is saved there too and
    `StoppedError` raised; see `Training`, also for ``data`` and ``save_every``.
    """
    missing = unfinished(configs, results)
    device = torch.device(device)
    for group in ensembles(missing):
        path = None if runs is None else checkpoint_of(group, runs)
        training = Training(group, device, path, save_every, data=data)
        _train_together(training, results, runs, commit, watch, keep, stop)
        if path is not None:
            path.unlink(missing_ok=True)
    return len(missing)


def unfinished(configs: Sequence[Config], results: Path) -> list[Config]:
    """The configs that have no record, each once."""
    tables = {config.table for config in configs}
    # Configs, not their names: fields that a later version adds take their defaults.
    done = {
        config_from(record["config"])
        for table in tables
        for record in store.read(results / f"{table}.jsonl")
    }
    return [config for config in dict.fromkeys(configs) if config not in done]


def ensembles(configs: Sequence[Config]) -> list[list[Config]]:
    """The groups that are trained together, in an order that depends on nothing but the configs."""
    ordered = sorted(configs, key=lambda config: (config.shared().identity, config.identity))
    return [list(group) for _, group in groupby(ordered, key=lambda config: config.shared())]


def checkpoint_of(ensemble: Sequence[Config], runs: Path) -> Path:
    """Where these runs and no others are saved while they train.

    Several processes may train different seeds side by side.
    """
    return runs / ensemble[0].table / f"{ensemble_identity(ensemble)}.ckpt"


def ensemble_identity(ensemble: Sequence[Config]) -> str:
    """A short name of runs that are trained together; their noise and dropout depend on it."""
    members = "".join(sorted(config.identity for config in ensemble))
    return hashlib.sha256(members.encode()).hexdigest()[:16]


def _train_together(
    training: Training,
    results: Path,
    runs: Path | None,
    commit: str | None,
    watch: Watch,
    keep: Keep,
    stop: Callable[[], bool],
) -> None:
    configs, device = training.configs, training.task.targets.device
    table = configs[0].table
    found = training.run(lambda progress: watch(training, progress), stop)
    shared = {
        "ensemble": ensemble_identity(configs),
        "members": len(configs),
        "seconds": round(training.seconds, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment.describe(device, commit),
    }
    # Networks first: after a kill, what has a record is not trained again.
    if runs is not None:
        kept = keep(found)
        for index, result in enumerate(found):
            if result.config.identity in kept:
                save_network(
                    runs / table / f"{result.config.identity}.safetensors", training, index
                )
    store.append(results / f"{table}.jsonl", [record_of(result) | shared for result in found])


def record_of(result: Result) -> dict[str, Any]:
    """What a record says of a run itself; where it took place is added to it."""
    config = result.config
    return {
        "run": config.identity,
        "table": config.table,
        "scenario": config.scenario,
        "loss": config.loss,
        "seed": config.seed,
        "metrics": {name: _number(value) for name, value in result.metrics.items()},
        "history": {
            name: [_number(value, digits=5) for value in curve]
            for name, curve in result.history.items()
        },
        "config": asdict(config),
    }


def _number(value: float, digits: int | None = None) -> float | None:
    """JSON knows no NaN and no infinity, which a diverged run has for a loss: None then."""
    if not math.isfinite(value):
        return None
    return value if digits is None else round(value, digits)


def save_network(path: Path, training: Training, index: int) -> None:
    """Write the network of a member with its config, for `load_network`."""
    tensors = {name: t.cpu() for name, t in training.ensemble.member(index).items()}
    learned = training.task.measure.learned
    facts = {"config": asdict(training.configs[index]), "learned": learned}
    checkpoint.write(path, tensors, facts)


def load_network(
    path: Path, facts: Path | None = None, data: Path = DATA
) -> tuple[Config, Network]:
    """The config and the network that `save_network` wrote, on the CPU and in evaluation mode.

    A network that learned from a file of facts needs it again; ``facts`` is where it lies now.
    Other data that are files lie in the folder ``data``, with what was learned about them: that is
    never learned anew here, since the network knows no other.
    """
    config, network, _ = load_network_and_task(path, facts, data)
    return config, network


def load_network_and_task(
    path: Path, facts: Path | None = None, data: Path = DATA
) -> tuple[Config, Network, Task]:
    """What `load_network` gives, and the examples that the network learned from."""
    tensors, saved = checkpoint.read(path)
    if "config" not in saved:
        raise ValueError(f"{path}: holds no network but the state of an unfinished training")
    config = config_from(saved["config"])
    if facts is not None:
        if not isinstance(config.data, FactsData):
            raise ValueError(f"{path}: was not trained on a file of facts, which {facts} is")
        config = replace(config, data=replace(config.data, file=str(facts)))
    if isinstance(config.data, BlocksData):
        folder = archive_of(config.data, data).parent
        require_autoencoder(config.data, folder, saved.get("learned"))
    task = load_task(config.data, data)
    network = build_network(config, task, to_train=False)
    network.load_state_dict(tensors)
    network.eval()
    part = network.autoencoder if isinstance(network, Reconstruction) else network.decoder
    return config, part, task
