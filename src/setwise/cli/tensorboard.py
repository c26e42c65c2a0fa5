"""Curves of every run for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from setwise.experiments.config import Config
from setwise.experiments.train import Progress, Training


class Logs:
    """Writes the loss and the score of each run to ``folder/<table>/<scenario>-<loss>-<seed>``.

    Call it at every evaluation.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def __call__(self, training: Training, progress: Progress) -> None:
        curves = {
            "loss": progress.losses,
            progress.metric: progress.score,
            "heldout": progress.heldout,
        }
        for k, config in enumerate(training.configs):
            writer = self._writer(config)
            for name, values in curves.items():
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
            name = f"{config.scenario}-{config.loss}-{config.seed}"
            self._writers[config.identity] = SummaryWriter(self._folder / config.table / name)
        return self._writers[config.identity]
