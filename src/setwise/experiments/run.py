"""From an experiment to records on disk: what is missing is trained, what is there is kept."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import torch

from setwise import environment
from setwise.executors import Executor, LocalExecutor, Work
from setwise.experiments import checkpoint, records, store
from setwise.experiments.config import Config, config_from
from setwise.experiments.context import THREADS
from setwise.experiments.evaluate import TrainingProgress
from setwise.experiments.experiment import Experiment
from setwise.experiments.saved_networks import network_path
from setwise.experiments.settings import check_settings
from setwise.experiments.tasks.task import DATA
from setwise.experiments.trained import Keep, Settings, Trained, defining_modules, train_ensemble
from setwise.files import alone
from setwise.files import unfinished as marked

# Called at every evaluation with the runs that are trained together.
Watch = Callable[[Sequence[Config], TrainingProgress], None]
TOGETHER = 10  # networks at most that are trained together where trainings are spread


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
    watch: Watch = lambda configs, progress: None,
    threads: int = THREADS,
    executor: Executor | None = None,
) -> list[records.Record]:
    """Train all runs of an experiment that have no record yet; the result is all of its records.

    Records go to ``results/<name>.jsonl``, and beside them what readers need to know of the
    experiment, so that ``setwise tables`` and ``setwise report`` show it. It is an error if there
    are records of another setting. The device is a GPU if there is one. See `train` for the rest.
    """
    executor = LocalExecutor() if executor is None else executor
    if device is None:
        device = "cuda" if executor.gpus else "cpu"
    require_own_name(experiment)
    configs = experiment.configs(seeds, scenarios, losses)
    left_to_train(experiment.name, configs, results)
    experiment.sheet.write(results)
    train(
        *(configs, device, results, runs),
        metric=experiment.metric,
        keep=keep,
        watch=watch,
        threads=threads,
        executor=executor,
    )
    return records.read(results / f"{experiment.name}.jsonl")


def train(
    configs: Sequence[Config],
    device: str | torch.device,
    results: Path,
    runs: Path | None = None,
    *,
    metric: str | None = None,
    commit: str | None = None,
    watch: Watch = lambda configs, progress: None,
    keep: Keep | None = None,
    stop: Callable[[], bool] = lambda: False,
    data: Path = DATA,
    save_every: float = 300.0,
    threads: int = THREADS,
    executor: Executor | None = None,
    together: int | None = None,
    gpus: float = 1.0,
) -> int:
    """Train every config that has no record yet, and return how many were trained.

    Records go to ``results/<experiment>.jsonl``. With ``runs``, a folder, an interrupted training
    goes on where it was, and the networks of results that ``keep`` names are saved there as
    ``<experiment>/<identity>.safetensors``. Once ``stop`` says so, the training is saved there too
    and `StoppedError` raised; see `Training`, also for ``metric``, ``data``, ``save_every`` and
    ``threads``.

    Trainings are the work of an ``executor``, by default one after the other in this process, each
    of at most ``together`` networks (see `ensembles`) with a share ``gpus`` of a GPU if they are on
    one. All that they come to is written here.
    """
    if keep is not None and runs is None:
        raise ValueError(
            "keep: networks are kept in a folder of runs, got runs None; name a folder"
        )
    executor = LocalExecutor() if executor is None else executor
    if executor.spreads:  # to where folders are not relative to this one
        data, runs = data.absolute(), None if runs is None else runs.absolute()
        together = TOGETHER if together is None else together
    missing = unfinished(configs, results)
    _remove_recorded({config.experiment for config in configs}, results, runs)
    begun: dict[Work, tuple[Sequence[Config], ExitStack]] = {}
    with ExitStack() as stack:
        locks = stack.enter_context(ExitStack())  # held until all work has ended
        mark = None
        if executor.spreads and runs is not None:
            mark = stack.enter_context(marked(runs / "shared"))
        settings = Settings(
            *(str(device), data, metric, threads, save_every),
            *(commit or environment.current_commit(), keep, mark),
            folder=Path.cwd() if executor.spreads else None,
        )

        def works() -> Iterator[Work]:
            on_gpu = torch.device(device).type == "cuda"
            for group in ensembles(missing, together):
                lock = locks.enter_context(ExitStack())
                lock.enter_context(alone(_lock_of(group, results), "training the same runs"))
                if not unfinished(group, results):
                    lock.close()  # another process has trained them since
                    continue
                work = Work(
                    f"{group[0].experiment}: training {len(group)} networks",
                    train_ensemble,
                    (group, None if runs is None else checkpoint_of(group, runs), settings),
                    cores=1 if on_gpu else threads,
                    gpus=gpus if on_gpu else 0.0,
                    modules=defining_modules(group),
                )
                begun[work] = group, lock
                yield work

        ended = executor.run(
            works(), told=lambda work, progress: watch(begun[work][0], progress), stop=stop
        )
        for work, trained in stack.enter_context(closing(ended)):
            group, lock = begun.pop(work)
            _record(trained, results, runs, keep)
            if runs is not None:
                checkpoint_of(group, runs).unlink(missing_ok=True)
            lock.close()
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


def ensembles(configs: Sequence[Config], together: int | None = None) -> list[list[Config]]:
    """The groups that are trained together, in an order that depends on nothing but the configs.

    None is larger than ``together``. Larger ones are cut so that seeds of the same loss stay beside
    each other, and in the same places as long as whole groups are left.
    """
    ordered = sorted(
        configs, key=lambda c: (c.shared().identity, c.loss, c.scenario, c.seed, c.identity)
    )
    whole = [list(group) for _, group in groupby(ordered, key=lambda config: config.shared())]
    if together is None:
        return whole
    if together < 1:
        raise ValueError(f"together: expected at least 1, got {together}")
    return [
        group[first : first + together]
        for group in whole
        for first in range(0, len(group), together)
    ]


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


def _record(trained: Trained, results: Path, runs: Path | None, keep: Keep | None) -> None:
    found = trained.results
    configs = [result.config for result in found]
    shared = {
        "ensemble": ensemble_identity(configs),
        "members": len(configs),
        "seconds": round(trained.seconds, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": trained.environment,
    }
    # Networks first: after a kill, what has a record is not trained again.
    if keep is not None and runs is not None:
        kept = keep(found)
        for config in configs:
            if config.identity in kept and config.identity in trained.networks:
                network = trained.networks[config.identity]
                checkpoint.write_packed(network_path(runs, config), network)
    new = [records.record_of(r.config, r.metrics, r.history) | shared for r in found]
    store.append(results / f"{configs[0].experiment}.jsonl", new)
