"""From an experiment to records on disk: what is missing is trained, what is there is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import torch

from setwise import environment
from setwise.experiments import records, store
from setwise.experiments.config import Config, config_from
from setwise.experiments.context import THREADS
from setwise.experiments.experiment import Experiment
from setwise.experiments.saved_networks import network_path, save_network
from setwise.experiments.settings import check_settings
from setwise.experiments.tasks.task import DATA
from setwise.experiments.train import RunResult, Training, TrainingProgress
from setwise.files import alone

Watch = Callable[[Training, TrainingProgress], None]
# Of the results of an ensemble, the identities of those whose networks are to be kept.
Keep = Callable[[Sequence[RunResult]], Collection[str]]


def run(
    experiment: Experiment,
    device: str | torch.device | None = None,
    *,
    results: Path = Path("results"),
    runs: Path | None = Path("runs"),
    seeds: Sequence[int] | None = None,
    scenarios: Sequence[str] | None = None,
    losses: Sequence[str] | None = None,
    keep: Keep | None = None,
    watch: Watch = lambda training, progress: None,
    threads: int = THREADS,
) -> list[records.Record]:
    """Train all runs of an experiment that have no record yet; the result is all of its records.

    Records go to ``results/<name>.jsonl``, and beside them what readers need to know of the
    experiment, so that ``setwise tables`` and ``setwise report`` show it. It is an error if there
    are records of another setting. The device is a GPU if there is one. See `train` for the rest.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    require_own_name(experiment)
    configs = experiment.configs(seeds, scenarios, losses)
    left_to_train(experiment.name, configs, results)
    experiment.sheet.write(results)
    told = (configs, device, results, runs)
    train(*told, metric=experiment.metric, keep=keep, watch=watch, threads=threads)
    return records.read(results / f"{experiment.name}.jsonl")


def train(
    configs: Sequence[Config],
    device: str | torch.device,
    results: Path,
    runs: Path | None = None,
    *,
    metric: str | None = None,
    commit: str | None = None,
    watch: Watch = lambda training, progress: None,
    keep: Keep | None = None,
    stop: Callable[[], bool] = lambda: False,
    data: Path = DATA,
    save_every: float = 300.0,
    threads: int = THREADS,
) -> int:
    """Train every config that has no record yet, and return how many were trained.

    Records go to ``results/<experiment>.jsonl``. With ``runs``, a folder, an interrupted training
    goes on where it was, and the networks of results that ``keep`` names are saved there as
    ``<experiment>/<identity>.safetensors``. Once ``stop`` says so, the training is saved there too
    and `StoppedError` raised; see `Training`, also for ``metric``, ``data``, ``save_every`` and
    ``threads``.
    """
    if keep is not None and runs is None:
        raise ValueError(
            "keep: networks are kept in a folder of runs, got runs None; name a folder"
        )
    missing = unfinished(configs, results)
    device = torch.device(device)
    _remove_recorded({config.experiment for config in configs}, results, runs)
    for group in ensembles(missing):
        path = None if runs is None else checkpoint_of(group, runs)
        with alone(_lock_of(group, results), "training the same runs"):
            if not unfinished(group, results):
                continue  # another process has trained them since
            training = Training(
                group, device, path, save_every, data=data, metric=metric, threads=threads
            )
            _train_together(training, results, runs, commit, watch, keep, stop)
            if path is not None:
                path.unlink(missing_ok=True)
    return len(missing)


def require_own_name(experiment: Experiment) -> None:
    """Refuse an experiment that bears the name of one of the library and is another."""
    from setwise.experiments.recipes import EXPERIMENTS, PLANNED

    name = experiment.name
    if name in PLANNED or EXPERIMENTS.get(name, experiment) != experiment:
        raise ValueError(
            f"name: {name!r} is an experiment of the library, with which its records would be "
            f"mixed up; give yours another name"
        )


def left_to_train(experiment: str, configs: Sequence[Config], results: Path) -> list[Config]:
    """The configs that have no record; refused where the records are of another setting."""
    missing = unfinished(configs, results)
    recorded = [record["config"] for record in records.read(results / f"{experiment}.jsonl")]
    check_settings(experiment, recorded + [config.as_dict() for config in missing])
    return missing


def unfinished(configs: Sequence[Config], results: Path) -> list[Config]:
    """The configs that have no record, each once."""
    # Configs, not their names: fields that a later version adds take their defaults.
    done = {
        config
        for name in {config.experiment for config in configs}
        for config in records.read_as(results / f"{name}.jsonl", config_from)
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
    return runs / ensemble[0].experiment / f"{ensemble_identity(ensemble)}.ckpt"


def _lock_of(ensemble: Sequence[Config], results: Path) -> Path:
    """Likewise who trains them for these results, wherever he keeps his checkpoints."""
    return results / f".{ensemble[0].experiment}-{ensemble_identity(ensemble)}.lock"


def _remove_recorded(experiments: Collection[str], results: Path, runs: Path | None) -> None:
    """Remove checkpoints and locks of runs that have their records: a kill came between the two.

    The lock tells that it came here: other checkpoints may be of trainings for other results.
    """
    for name in experiments:
        done = {str(record.get("ensemble")) for record in records.read(results / f"{name}.jsonl")}
        for lock in results.glob(".*.lock"):
            ensemble = lock.stem.removeprefix(f".{name}-")
            if ensemble in done:
                if runs is not None:
                    (runs / name / f"{ensemble}.ckpt").unlink(missing_ok=True)
                lock.unlink(missing_ok=True)


def ensemble_identity(ensemble: Sequence[Config]) -> str:
    """A short name of runs that are trained together."""
    members = "".join(sorted(config.identity for config in ensemble))
    return hashlib.sha256(members.encode()).hexdigest()[:16]


def _train_together(
    training: Training,
    results: Path,
    runs: Path | None,
    commit: str | None,
    watch: Watch,
    keep: Keep | None,
    stop: Callable[[], bool],
) -> None:
    configs, device = training.configs, training.task.targets.device
    found = training.run(lambda progress: watch(training, progress), stop)
    shared = {
        "ensemble": ensemble_identity(configs),
        "members": len(configs),
        "seconds": round(training.seconds, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": environment.describe(device, commit, training.threads),
    }
    # Networks first: after a kill, what has a record is not trained again.
    if keep is not None and runs is not None:
        kept = keep(found)
        for index, result in enumerate(found):
            if result.config.identity in kept:
                save_network(network_path(runs, result.config), training, index)
    new = [records.record_of(r.config, r.metrics, r.history) | shared for r in found]
    store.append(results / f"{configs[0].experiment}.jsonl", new)
