"""The work of training an ensemble, which may be done on another machine, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, chdir, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setwise import environment
from setwise.experiments.config import Config
from setwise.experiments.evaluate import RunResult, TrainingProgress
from setwise.experiments.saved_networks import packed_network
from setwise.experiments.train import Training
from setwise.losses.table import LOSSES

# Of the results of an ensemble, the identities of those whose networks are to be kept. Asked where
# they were trained, so that no others travel, and of these once more where all records are.
Keep = Callable[[Sequence[RunResult]], Collection[str]]


@dataclass(frozen=True)
class Settings:
    """How an ensemble is trained, wherever that is; see `Training`."""

    device: str
    data: Path
    metric: str | None
    threads: int
    save_every: float
    commit: str | None
    keep: Keep | None
    # A file that is there as long as the command runs, in the folder of checkpoints: elsewhere it
    # tells whether that is the same folder. None where it surely is.
    mark: Path | None = None
    # Where the command was given: names of files may be relative to it.
    folder: Path | None = None


@dataclass(frozen=True)
class Trained:
    """What came of an ensemble."""

    results: list[RunResult]
    seconds: float
    environment: dict[str, Any]
    networks: dict[str, bytes]  # files of those to keep, by identity


def train_ensemble(
    configs: Sequence[Config],
    save_to: Path | None,
    settings: Settings,
    *,
    tell: Callable[[TrainingProgress], None],
    stop: Callable[[], bool],
) -> Trained:
    """Train configs together; see `setwise.executors.Work`.

    It goes on from the checkpoint ``save_to``, if that is in a folder that all machines share.
    """
    mark = settings.mark
    shared = mark is None or mark.exists()

    def stopped() -> bool:
        """Asked to, or the command has ended without a word: another may go on by now."""
        return stop() or (shared and mark is not None and not mark.exists())

    with _within(settings.folder):
        training = Training(
            configs,
            settings.device,
            save_to if shared else None,
            settings.save_every,
            data=settings.data,
            metric=settings.metric,
            threads=settings.threads,
        )
    results = training.run(tell, stopped)
    kept = settings.keep(results) if settings.keep is not None else ()
    device = training.task.targets.device
    return Trained(
        results,
        training.seconds,
        environment.describe(device, settings.commit, settings.threads),
        {
            result.config.identity: packed_network(training, index)
            for index, result in enumerate(results)
            if result.config.identity in kept
        },
    )


def _within(folder: Path | None) -> AbstractContextManager[None]:
    """In a folder, if this machine has it."""
    return chdir(folder) if folder is not None and folder.is_dir() else nullcontext()


def defining_modules(configs: Sequence[Config]) -> tuple[str, ...]:
    """Where the parts of configs are defined that are no part of the library."""
    parts = (
        part
        for config in configs
        for part in (type(config.data), type(config.network), LOSSES[config.loss].function)
    )
    names = {part.__module__ for part in parts}
    return tuple(sorted(name for name in names if name.partition(".")[0] != "setwise"))
