"""What a schedule changes about the loss in the course of a training.

Legend: K members, b examples of a batch, N outputs, M targets, F features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.experiments.config import Schedule
from setwise.experiments.tasks.task import Task
from setwise.features import Gaussian
from setwise.losses.exclusivity import rising_exclusivity
from setwise.models import annealed_temperature


class Annealing:
    """Numbers on the device of the task: a step that was recorded reads what they are by then."""

    def __init__(self, schedule: Schedule, task: Task) -> None:
        self._schedule, device = schedule, task.targets.device
        self._temperature = torch.tensor(schedule.loss_temperature, device=device)
        self._exclusivity = torch.zeros((), device=device)
        self._blur = torch.tensor(schedule.blur, device=device)
        self._blurred = _gaussian(task)

    def move(self, progress: float) -> None:
        """To a share of the training."""
        schedule = self._schedule
        until = schedule.loss_temperature_until
        self._temperature.fill_(
            annealed_temperature(progress, schedule.loss_temperature, 1.0, until)
        )
        if schedule.exclusivity_until:
            self._exclusivity.fill_(rising_exclusivity(progress, schedule.exclusivity_until))
        self._blur.fill_(annealed_temperature(progress, schedule.blur, 1.0, schedule.blur_until))

    def options(self) -> dict[str, Tensor]:
        """Options of losses. Only what changes is given: a loss of its own has faster kernels."""
        found = {}
        if self._schedule.loss_temperature != 1:
            found["temperature"] = self._temperature
        if self._schedule.exclusivity_until:
            found["exclusivity"] = self._exclusivity
        return found

    def blurred(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and targets, compared as if Gaussian scales were so many times as wide."""
        if self._schedule.blur == 1:
            return logits, targets
        width = torch.where(self._blurred, self._blur, 1.0)
        return logits / width, targets / width


def _gaussian(task: Task) -> Tensor:
    """Which numbers of an element, [F] or with its presence [F + 1], are Gaussian."""
    blocks = task.features.blocks
    flags = [isinstance(block, Gaussian) for block in blocks for _ in range(block.width)]
    flags += [False] * (task.targets.shape[-1] - len(flags))
    return torch.tensor(flags, device=task.targets.device)
