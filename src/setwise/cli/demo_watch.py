"""The training of the demonstration as it goes: bars in a terminal, some lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from setwise.cli.interrupt import Interrupt
from setwise.cli.watch import clock
from setwise.experiments.config import Config
from setwise.experiments.train import Progress
from setwise.report.paper import LOSS_NAMES

_LINES = 10  # about so many where the output is no terminal


class DemoWatcher:
    """Shows which share of the states each network gets right.

    Use it as a context, and call it at every evaluation.
    """

    def __init__(self, console: Console, interrupt: Interrupt) -> None:
        self._console, self._interrupt = console, interrupt
        # Read by the thread that refreshes the terminal, hence set in one step.
        self._latest: tuple[Sequence[Config], Progress] | None = None
        self._since = time.perf_counter()
        self._said = 0
        self._live = Live(
            console=console, refresh_per_second=4, get_renderable=self._render, transient=True
        )

    def __enter__(self) -> DemoWatcher:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def __call__(self, configs: Sequence[Config], progress: Progress) -> None:
        self._since = time.perf_counter()
        self._latest = configs, progress
        tenth = progress.epoch * _LINES // progress.epochs
        if not self._console.is_terminal and tenth > self._said:
            self._said = tenth
            pairs = zip(configs, progress.score, strict=True)
            scores = ", ".join(f"{config.loss} {score:.2f}" for config, score in pairs)
            line = f"  {_header(progress, 0.0)}; states right: {scores}"
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _render(self) -> RenderableType:
        waited = time.perf_counter() - self._since
        if self._latest is None:
            return self._with_note(Text(f"  first epochs, {clock(waited)} gone"))
        configs, progress = self._latest
        table = Table.grid(padding=(0, 2))
        table.add_row("", ProgressBar(progress.epochs, progress.epoch, width=30))
        rows = sorted(zip(configs, progress.score, strict=True), key=lambda row: -row[1])
        for config, score in rows:
            name = f"  {config.loss}, {LOSS_NAMES[config.loss]}"
            bar = ProgressBar(1.0, score, width=30, complete_style="cyan")
            table.add_row(name, bar, f"{score:.2f} of the states right")
        return self._with_note(Text(f"  {_header(progress, waited)}"), table)

    def _with_note(self, *parts: RenderableType) -> Group:
        if not self._interrupt.pressed:
            return Group(*parts)
        return Group(*parts, Text("  stopping after this epoch; Ctrl-C again to stop at once"))


def _header(progress: Progress, waited: float) -> str:
    left = max(0.0, progress.seconds_left - waited)
    return (
        f"epoch {progress.epoch} of {progress.epochs}, "
        f"{clock(progress.seconds + waited)} gone, {clock(left)} left"
    )
