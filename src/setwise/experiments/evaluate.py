"""What the members of an ensemble produce is worth, while they are trained and in the end.

Legend: K members, S examples, N elements, F features.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from setwise.experiments.config import Config
from setwise.experiments.ensemble import Ensemble, finite_sets
from setwise.experiments.presentation import Presentation
from setwise.experiments.progress import State
from setwise.experiments.tasks.task import Task

# Sets evaluated at once, over all members, and numbers that are read for them: whole pictures are
# many. Both bound the memory.
SETS_AT_ONCE = 40_000
NUMBERS_AT_ONCE = 2**28


@dataclass(frozen=True)
class TrainingProgress:
    """How far an ensemble is, for whoever watches."""

    epoch: int
    epochs: int
    seconds: float
    # Per member, in the order of `Training.configs`.
    losses: list[float]
    # What is measured, by the name of its metric, on all examples and on the held-out ones.
    score: list[float]
    # Empty where nothing is held out.
    heldout: list[float]
    metric: str = "success"

    def of(self, metric: str) -> list[float]:
        """What an experiment compares, which may be the loss or what is held out."""
        return {"heldout": self.heldout, "loss": self.losses}.get(metric, self.score)

    @property
    def seconds_left(self) -> float:
        return self.seconds / max(self.epoch, 1) * (self.epochs - self.epoch)


@dataclass(frozen=True)
class RunResult:
    """What became of one member."""

    config: Config
    metrics: dict[str, float]
    # One entry per evaluation: epoch, loss, the metric, heldout.
    history: dict[str, list[float]]


class Evaluator:
    """Points of learning curves at the `epochs` of a schedule, and the final numbers.

    ``metric`` is the number to compare; see `setwise.experiments.train.Training`.
    """

    def __init__(
        self, ensemble: Ensemble, task: Task, configs: Sequence[Config], metric: str | None
    ) -> None:
        self._ensemble, self._task, self._configs = ensemble, task, configs
        self._schedule = configs[0].schedule
        self.epochs = _evaluation_epochs(self._schedule.epochs, self._schedule.evaluations)
        self._rows = _evenly(task)
        self._heldout = self._rows >= task.train
        self._with_train = metric == "train"
        self._measured = self._measured_for(metric)
        # What a point has a number of, for each member.
        self.columns = {"loss", self._measured}
        self.columns |= {"train"} if self._with_train else set()
        self.columns |= {"heldout"} if self._heldout.any() else set()

    def point(self, epoch: int, losses: Tensor) -> dict[str, Any]:
        """What is measured on some examples after an epoch, of which ``losses`` [K] are known."""
        total = self._task.measure.total
        found = measured(self._ensemble, self._task, self._configs, self._rows, final=False)
        values = found[self._measured]
        point = {"epoch": epoch, "loss": losses.tolist(), self._measured: total(values).tolist()}
        if self._heldout.any():
            point["heldout"] = total(values[:, self._heldout]).tolist()
        if self._with_train:
            point["train"] = total(values[:, ~self._heldout]).tolist()
        return point

    def progress(self, state: State) -> TrainingProgress:
        """The last of the points, as it is shown."""
        point = state.history[-1]
        return TrainingProgress(
            state.epoch,
            self._schedule.epochs,
            state.seconds,
            point["loss"],
            point[self._measured],
            point.get("heldout", []),
            self._measured,
        )

    def results(self, state: State, losses: Tensor) -> list[RunResult]:
        """The final numbers are measured on the sets themselves, in the order a scenario gives."""
        measure, train = self._task.measure, self._task.train
        found = measured(self._ensemble, self._task, self._configs)
        totals = {name: measure.total(values) for name, values in found.items()}
        values = found[self._measured]
        totals |= {"train": measure.total(values[:, :train]), "loss": losses}
        if train < values.shape[1]:
            totals["heldout"] = measure.total(values[:, train:])
            others = [name for name in found if name != self._measured]
            totals |= {f"heldout_{name}": measure.total(found[name][:, train:]) for name in others}
        results = []
        for k, config in enumerate(self._configs):
            metrics = {name: total[k].item() for name, total in totals.items()}
            history = {
                name: [
                    point[name] if name == "epoch" else point[name][k] for point in state.history
                ]
                for name in state.history[-1]
            }
            results.append(RunResult(config, metrics, history))
        return results

    def _measured_for(self, metric: str | None) -> str:
        """Which of the measure's numbers is compared; one that there is not is told now."""
        own, task = self._task.measure.metric, self._task
        whole = ["loss", "train", *(["heldout"] if task.train < len(task.targets) else [])]
        if metric is None or metric in (own, *whole):
            return own
        found = measured(self._ensemble, task, self._configs, self._rows[:1], final=False)
        if metric not in found:
            raise ValueError(
                f"metric: {self._configs[0].experiment} has no {metric!r}; its runs have "
                f"{', '.join([*found, *whole])}"
            )
        return metric


@torch.no_grad()
def measured(
    ensemble: Ensemble,
    task: Task,
    configs: Sequence[Config],
    rows: Tensor | None = None,
    *,
    final: bool = True,
) -> dict[str, Tensor]:
    """The values [K, S] of the task's measure, by name, for each member without noise.

    ``rows`` are the examples to look at, by default all of them. What is not ``final`` may be read
    in a faster form; see `Presentation`.
    """
    presentation = Presentation(configs, task)
    device = task.targets.device
    temperature = torch.ones((), device=device)
    rows = torch.arange(len(task.targets), device=device) if rows is None else rows
    found: dict[str, list[Tensor]] = defaultdict(list)
    numbers = max(1, task.inputs[:1].numel())
    sets = min(SETS_AT_ONCE, NUMBERS_AT_ONCE // numbers)
    for some in rows.split(max(1, sets // len(configs))):
        inputs = presentation.in_evaluation(some, final=final)
        logits, finite = finite_sets(ensemble(inputs, temperature))
        judged = task.measure(logits, finite, task.targets[some], task.features)
        for name, values in judged.items():
            found[name].append(values)
    return {name: torch.cat(values, dim=1) for name, values in found.items()}


def _evaluation_epochs(epochs: int, evaluations: int) -> list[int]:
    spread = {round(epochs * (i + 1) / evaluations) for i in range(evaluations)}
    return sorted((spread | {epochs}) - {0})


def _evenly(task: Task) -> Tensor:
    """The examples that curves are measured on, spread evenly over those trained on and others."""
    wanted, there = task.measure.curve_examples, len(task.targets)
    step = 1 if wanted is None else max(1, there // wanted)
    return torch.arange(0, there, step, device=task.targets.device)
