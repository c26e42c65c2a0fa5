"""From configs to records on disk: what is missing is trained, what is there is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from setwise.experiments import checkpoint, environment, store
from setwise.experiments.config import Config
from setwise.experiments.train import Progress, Result, Training

Watch = Callable[[Training, Progress], None]


def reproduce(
    configs: Sequence[Config],
    device: str | torch.device,
    results: Path,
    runs: Path | None = None,
    *,
    commit: str | None = None,
    watch: Watch = lambda training, progress: None,
    keep: Callable[[Result], bool] = lambda result: False,
) -> int:
    """Train every config that has no record yet, and return how many were trained.

    Records go to ``results/<table>.jsonl``. With ``runs``, a folder, an interrupted training goes
    on where it was, and the networks of results that ``keep`` names are saved there as
    ``<table>/<identity>.safetensors``.
    """
    missing = unfinished(configs, results)
    device = torch.device(device)
    # Ensembles in a fixed order: an interrupted command finds its checkpoint again.
    ordered = sorted(missing, key=lambda config: (config.shared().identity, config.identity))
    for _, group in groupby(ordered, key=lambda config: config.shared()):
        _train_together(list(group), device, results, runs, commit, watch, keep)
    return len(missing)


def unfinished(configs: Sequence[Config], results: Path) -> list[Config]:
    """The configs that have no record."""
    tables = {config.table for config in configs}
    done = {record["run"] for table in tables for record in store.read(results / f"{table}.jsonl")}
    return [config for config in configs if config.identity not in done]


def _train_together(
    configs: list[Config],
    device: torch.device,
    results: Path,
    runs: Path | None,
    commit: str | None,
    watch: Watch,
    keep: Callable[[Result], bool],
) -> None:
    table = configs[0].table
    path = None if runs is None else runs / table / f"{configs[0].shared().identity}.ckpt"
    training = Training(configs, device, path)
    began = time.perf_counter()
    found = training.run(lambda progress: watch(training, progress))
    seconds = time.perf_counter() - began
    shared = {
        "members": len(configs),
        "seconds": round(seconds, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment.describe(device, commit),
    }
    store.append(results / f"{table}.jsonl", [_record(result, shared) for result in found])
    if runs is not None:
        for index, result in enumerate(found):
            if keep(result):
                save_network(
                    runs / table / f"{result.config.identity}.safetensors", training, index
                )
    if path is not None:
        path.unlink(missing_ok=True)


def _record(result: Result, shared: dict[str, Any]) -> dict[str, Any]:
    config = result.config
    return {
        "run": config.identity,
        "table": config.table,
        "scenario": config.scenario,
        "loss": config.loss,
        "seed": config.seed,
        "metrics": result.metrics,
        "history": {name: [round(x, 5) for x in curve] for name, curve in result.history.items()},
        "config": asdict(config),
    } | shared


def save_network(path: Path, training: Training, index: int) -> None:
    """Write the network of a member with its config, for `load_network`."""
    tensors = {name: t.cpu() for name, t in training.ensemble.member(index).items()}
    checkpoint.write(path, tensors, {"config": asdict(training.configs[index])})
