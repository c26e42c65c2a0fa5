"""Curves of every run for TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from setwise.experiments.config import Config
from setwise.experiments.evaluate import TrainingProgress
from setwise.losses.table import LOSSES


class Logs:
    """Writes the loss and the score of each run to a folder below the given one.

    It is named ``<experiment>/<scenario>-<loss>-<seed>``.

    Call it at every evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def __call__(self, configs: Sequence[Config], progress: TrainingProgress) -> None:
        curves = {
            "loss": progress.losses,
            progress.metric: progress.score,
            "heldout": progress.heldout,
        }
        for k, config in enumerate(configs):
            writer = self._writer(config)
            for name, values in curves.items():
                if not values:  # nothing is held out
                    continue
                writer.add_scalar(name, values[k], progress.epoch)
            writer.flush()
        if progress.epoch == progress.epochs:
            self.close()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _writer(self, config: Config) -> Any:
        if config.identity not in self._writers:
            name = f"{config.scenario}-{LOSSES[config.loss].symbol}-{config.seed}"
            self._writers[config.identity] = SummaryWriter(self._folder / config.experiment / name)
        return self._writers[config.identity]
