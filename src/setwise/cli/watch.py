"""A training as it goes: a table in a terminal, some lines elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from setwise.cli.interrupt import Interrupt
from setwise.experiments.config import Config
from setwise.experiments.evaluate import TrainingProgress
from setwise.experiments.experiment import Sheet
from setwise.losses.table import LOSSES
from setwise.report.records import HELDOUT

MOST_SHOWN = 8  # trainings, each in a line; of more the last ones


class View(Protocol):
    """What to show of the runs of an ensemble."""

    def line(self, configs: Sequence[Config], progress: TrainingProgress) -> str:
        """In one line, where there is no terminal."""

    def table(self, configs: Sequence[Config], progress: TrainingProgress) -> RenderableType:
        """In a terminal."""


@dataclass
class _Training:
    """One that has been heard of, in the order in which that was."""

    number: int
    configs: Sequence[Config]
    progress: TrainingProgress
    since: float
    printed: int = 0

    @property
    def ended(self) -> bool:
        return self.progress.epoch == self.progress.epochs


class Watcher:
    """Shows the progress of ensembles, trained one after the other or beside each other.

    Use it as a context, and call it at every evaluation. ``lines`` is about how many are printed
    of an ensemble where there is no terminal; by default one an evaluation.
    """

    def __init__(
        self,
        console: Console,
        name: str,
        view: View,
        interrupt: Interrupt,
        *,
        ensembles: int = 1,
        lines: int | None = None,
    ) -> None:
        self._console, self._name, self._view = console, name, view
        self._interrupt, self._ensembles, self._lines = interrupt, ensembles, lines
        # Those to show, which the thread that refreshes the terminal reads: replaced in one step.
        # The trainings themselves are not held on to, nor is their memory.
        self._shown: tuple[_Training, ...] = ()
        self._begun = 0
        self._since = time.perf_counter()
        self._live = Live(
            console=console, refresh_per_second=2, get_renderable=self._render, transient=True
        )

    def __enter__(self) -> Watcher:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def __call__(self, configs: Sequence[Config], progress: TrainingProgress) -> None:
        training = next((one for one in self._shown if one.configs is configs), None)
        if training is None:
            self._begun += 1
            training = _Training(self._begun, configs, progress, time.perf_counter())
            running = tuple(one for one in self._shown if not one.ended)
            self._shown = (*running, training)
        training.progress, training.since = progress, time.perf_counter()
        if self._console.is_terminal:
            return
        due = progress.epoch * (self._lines or progress.epochs) // progress.epochs
        if due > training.printed:
            training.printed = due
            line = f"{self._header(training, 0.0)} | {self._view.line(configs, progress)}"
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _header(self, training: _Training, waited: float) -> str:
        progress = training.progress
        which = f" ({training.number} of {self._ensembles})" if self._ensembles > 1 else ""
        left = max(0.0, progress.seconds_left - waited)
        return (
            f"{self._name}{which}: epoch {progress.epoch} of {progress.epochs}, "
            f"{clock(progress.seconds + waited)} gone, {clock(left)} left"
        )

    def _render(self) -> RenderableType:
        now, shown = time.perf_counter(), self._shown
        if not shown:
            gone = clock(now - self._since)
            return self._with_note(Text(f"{self._name}: first epochs, {gone} gone"))
        header = Table.grid(padding=(0, 1))
        for training in shown[-MOST_SHOWN:]:
            progress = training.progress
            waited = 0.0 if training.ended else now - training.since
            bar = ProgressBar(progress.epochs, progress.epoch, width=20)
            header.add_row(bar, Text(self._header(training, waited)))
        if len(shown) > MOST_SHOWN:
            header.add_row("", Text(f"and {len(shown) - MOST_SHOWN} more"))
        return self._with_note(header, self._view.table(*_joined(shown)))

    def _with_note(self, *parts: RenderableType) -> Group:
        if not self._interrupt.pressed:
            return Group(*parts)
        return Group(*parts, Text("stopping after this epoch; Ctrl-C again to stop at once"))


def _joined(shown: Sequence[_Training]) -> tuple[Sequence[Config], TrainingProgress]:
    """The runs of all trainings, and the last numbers of each."""
    every = [training.progress for training in shown]
    return [config for training in shown for config in training.configs], replace(
        every[0],
        losses=[value for progress in every for value in progress.losses],
        score=[value for progress in every for value in progress.score],
        heldout=[value for progress in every for value in progress.heldout],
    )


@dataclass(frozen=True)
class LossSummary:
    """How the runs of one loss stand."""

    symbol: str
    mean_loss: float
    # For each scenario the number of the best run and of the median one.
    score: dict[str, tuple[float, float]]
    decimals: int = 2


class CellsView:
    """Losses as rows, scenarios as columns: the best run and the median of the seeds."""

    def __init__(self, sheet: Sheet) -> None:
        self._sheet = sheet

    def line(self, configs: Sequence[Config], progress: TrainingProgress) -> str:
        return " | ".join(map(in_a_line, self.summaries(configs, progress)))

    def table(self, configs: Sequence[Config], progress: TrainingProgress) -> RenderableType:
        summaries = self.summaries(configs, progress)
        names = sorted({name for summary in summaries for name in summary.score})
        what = "held out" if self._sheet.metric == HELDOUT else self._sheet.metric
        table = Table(caption=f"{what}: best and median of the seeds", caption_justify="left")
        table.add_column("")
        table.add_column("mean loss", justify="right")
        for name in names:
            table.add_column(name, justify="right")
        for summary in summaries:
            cells = [_pair(summary, name) if name in summary.score else "" for name in names]
            table.add_row(summary.symbol, f"{summary.mean_loss:.3g}", *cells)
        return table

    def summaries(self, configs: Sequence[Config], progress: TrainingProgress) -> list[LossSummary]:
        """One for each loss, in the order of the sheet; of all examples or the held-out ones."""
        sheet = self._sheet
        losses: dict[str, list[float]] = defaultdict(list)
        scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        found = progress.of(sheet.metric)
        for config, loss, score in zip(configs, progress.losses, found, strict=True):
            losses[config.loss].append(loss)
            scores[config.loss][config.scenario].append(score)
        return [
            LossSummary(
                style.symbol,
                fmean(losses[loss]),
                {name: (sheet.best_first(of)[0], median(of)) for name, of in scores[loss].items()},
                decimals=2 if sheet.better == "higher" else 3,  # errors are small numbers
            )
            for loss, style in sheet.losses.items()
            if loss in losses
        ]


class ScoresView:
    """A bar for each network: the share of the examples that it gets right."""

    def line(self, configs: Sequence[Config], progress: TrainingProgress) -> str:
        pairs = zip(configs, progress.score, strict=True)
        scores = [f"{LOSSES[config.loss].symbol} {score:.2f}" for config, score in pairs]
        return f"states right: {', '.join(scores)}"

    def table(self, configs: Sequence[Config], progress: TrainingProgress) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        rows = sorted(zip(configs, progress.score, strict=True), key=lambda row: -row[1])
        for config, score in rows:
            loss = LOSSES[config.loss]
            bar = ProgressBar(1.0, score, width=30, complete_style="cyan")
            table.add_row(f"  {loss.symbol}, {loss.label}", bar, f"{score:.2f} of the states right")
        return table


def in_a_line(summary: LossSummary) -> str:
    """``SH 0.43 [1: 0.99 0.98, 2: 0.97 0.95]``: the loss, then best and median number.

    >>> in_a_line(LossSummary("SH", 0.4321, {"1": (0.99, 0.975), "2": (1.0, 0.5)}))
    'SH 0.432 [1: 0.99 0.97, 2: 1.00 0.50]'
    """
    cells = ", ".join(f"{name}: {_pair(summary, name)}" for name in summary.score)
    return f"{summary.symbol} {summary.mean_loss:.3g} [{cells}]"


def _pair(summary: LossSummary, scenario: str) -> str:
    return " ".join(f"{value:.{summary.decimals}f}" for value in summary.score[scenario])


def clock(seconds: float) -> str:
    """Minutes and seconds, and hours where there are any.

    >>> clock(75.4), clock(3 * 3600 + 61)
    ('1:15', '3:01:01')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
