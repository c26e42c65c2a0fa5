"""A training as it goes: a table in a terminal, one line an evaluation elsewhere."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from setwise.cli.interrupt import Interrupt
from setwise.experiments.config import LOSSES, Config
from setwise.experiments.train import Progress, Training
from setwise.report.paper import PaperTable, paper_table
from setwise.report.tables import HELDOUT


@dataclass(frozen=True)
class LossSummary:
    """How the runs of one loss stand."""

    loss: str
    mean_loss: float
    # For each scenario the number of the best run and of the median one.
    score: dict[str, tuple[float, float]]
    decimals: int = 2


class Watcher:
    """Shows the progress of ensembles that are trained one after the other.

    Use it as a context, and call it at every evaluation.
    """

    def __init__(self, console: Console, table: str, ensembles: int, interrupt: Interrupt) -> None:
        self._console = console
        self._table, self._ensembles = table, ensembles
        self._paper = paper_table(table)
        self._interrupt = interrupt
        # Read by the thread that refreshes the terminal, hence set in one step. The training
        # itself is not held on to, nor is its memory.
        self._latest: tuple[Sequence[Config], Progress] | None = None
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

    def __call__(self, training: Training, progress: Progress) -> None:
        if self._latest is None or training.configs is not self._latest[0]:
            self._begun += 1
        self._since = time.perf_counter()
        self._latest = training.configs, progress
        if not self._console.is_terminal:
            summaries = summarise(*self._latest, self._paper)
            line = f"{self._header(progress, 0.0)} | {' | '.join(map(in_a_line, summaries))}"
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _header(self, progress: Progress, waited: float) -> str:
        which = f" ({self._begun} of {self._ensembles})" if self._ensembles > 1 else ""
        left = max(0.0, progress.seconds_left - waited)
        return (
            f"{self._table}{which}: epoch {progress.epoch} of {progress.epochs}, "
            f"{clock(progress.seconds + waited)} gone, {clock(left)} left"
        )

    def _render(self) -> RenderableType:
        waited = time.perf_counter() - self._since
        if self._latest is None:
            return self._with_note(Text(f"{self._table}: first epochs, {clock(waited)} gone"))
        configs, progress = self._latest
        summaries = summarise(configs, progress, self._paper)
        header = Table.grid(padding=(0, 1))
        bar = ProgressBar(progress.epochs, progress.epoch, width=20)
        header.add_row(bar, Text(self._header(progress, waited)))
        return self._with_note(header, as_table(summaries, _measured(progress, self._paper)))

    def _with_note(self, *parts: RenderableType) -> Group:
        if not self._interrupt.pressed:
            return Group(*parts)
        return Group(*parts, Text("stopping after this epoch; Ctrl-C again to stop at once"))


def summarise(
    configs: Sequence[Config], progress: Progress, paper: PaperTable
) -> list[LossSummary]:
    """One for each loss, in the order of the paper; of all examples or of the held-out ones."""
    losses: dict[str, list[float]] = defaultdict(list)
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    found = progress.heldout if paper.metric == HELDOUT else progress.score
    for config, loss, score in zip(configs, progress.losses, found, strict=True):
        losses[config.loss].append(loss)
        scores[config.loss][config.scenario].append(score)
    return [
        LossSummary(
            loss,
            fmean(losses[loss]),
            {name: (paper.best_first(of)[0], median(of)) for name, of in scores[loss].items()},
            decimals=2 if paper.better == "higher" else 3,  # errors are small numbers
        )
        for loss in LOSSES
        if loss in losses
    ]


def _measured(progress: Progress, paper: PaperTable) -> str:
    return "held out" if paper.metric == HELDOUT else progress.metric


def in_a_line(summary: LossSummary) -> str:
    """``SH 0.43 [1: 0.99 0.98, 2: 0.97 0.95]``: the loss, then best and median number.

    >>> in_a_line(LossSummary("SH", 0.4321, {"1": (0.99, 0.975), "2": (1.0, 0.5)}))
    'SH 0.432 [1: 0.99 0.97, 2: 1.00 0.50]'
    """
    cells = ", ".join(f"{name}: {_pair(summary, name)}" for name in summary.score)
    return f"{summary.loss} {summary.mean_loss:.3g} [{cells}]"


def as_table(summaries: Sequence[LossSummary], what: str) -> Table:
    """Losses as rows, scenarios as columns."""
    names = sorted({name for summary in summaries for name in summary.score})
    table = Table(caption=f"{what}: best and median of the seeds", caption_justify="left")
    table.add_column("")
    table.add_column("mean loss", justify="right")
    for name in names:
        table.add_column(name, justify="right")
    for summary in summaries:
        cells = [_pair(summary, name) if name in summary.score else "" for name in names]
        table.add_row(summary.loss, f"{summary.mean_loss:.3g}", *cells)
    return table


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
