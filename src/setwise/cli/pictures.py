"""Pictures of the Blocksworld, drawn by a command and shown as they come."""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.experiments.config import Config
from setwise.experiments.tasks import BlocksData, DataConfig

if TYPE_CHECKING:
    from rich.console import Console

    from setwise.data.blocksworld_archive import BlocksworldArchive
    from setwise.executors import Executor
    from setwise.render.dataset import Progress, Settings

LINES = 40  # of progress, at most, where there is no terminal


def draw_archive(
    settings: Settings,
    states: int | None,
    folder: Path,
    console: Console,
    *,
    workers: int | None = None,
    blender: Path | None = None,
    executor: Executor | None = None,
    device: str = "cpu",
) -> tuple[Path, BlocksworldArchive]:
    """See `setwise.render.archive.draw_archive`."""
    from setwise.render import archive

    with shown(console) as progress, told():
        return archive.draw_archive(
            settings,
            states,
            folder,
            workers=workers,
            blender=blender,
            progress=progress,
            executor=executor,
            device=device,
        )


def with_pictures(
    configs: Sequence[Config], folder: Path, console: Console, done: Collection[Config]
) -> list[Config]:
    """The configs bound to the files that their data are, which are made if they are not there.

    Where all that need the same data are ``done``, nothing is left to do with these: the configs
    are bound to the files they were done with then, wherever those are.
    """
    bound: dict[DataConfig, DataConfig] = {}
    for data in dict.fromkeys(config.data for config in configs):
        alike = [config for config in configs if config.data == data]
        bound[data] = _done_with(data, alike, folder, done) or _made(data, folder, console)
    return [replace(config, data=bound[config.data]) for config in configs]


def _done_with(
    data: DataConfig, configs: Sequence[Config], folder: Path, done: Collection[Config]
) -> DataConfig | None:
    """The data that all these configs were done with, if there are such and no files here."""
    if data.preparation(folder) is None:
        return None
    known = {own.data for own in done if own.data.unbound() == data.unbound()}
    for same in sorted(known, key=repr):
        if all(replace(config, data=same) in done for config in configs):
            return same
    return None


def _made(data: DataConfig, folder: Path, console: Console) -> DataConfig:
    with told():
        if (what := data.preparation(folder)) is not None:
            console.print(what, highlight=False)
            with shown(console) as progress:
                data.prepare(folder, progress)
        return data.bound(folder)


def settings_of(options: argparse.Namespace) -> Settings:
    """What pictures are drawn with; the options of a command are named like the fields of data."""
    names = ("blocks", "stacks", "seed", "renderer", "width", "height", "samples")
    return BlocksData(**{name: getattr(options, name) for name in names}).render_settings()


@contextmanager
def told() -> Iterator[None]:
    """What is wrong with settings, programs or files is said in a line."""
    try:
        yield
    except (ValueError, RuntimeError, FileNotFoundError) as error:
        raise CommandError(str(error)) from error


@contextmanager
def shown(console: Console) -> Iterator[Progress]:
    """What to call after each picture: a bar in a terminal, a line now and then elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(BarColumn(20), TextColumn("{task.description}"), console=console, transient=True)
    task = bar.add_task("")
    first: tuple[int, float] | None = None  # how many were there when the first was drawn, and when

    def progress(there: int, wanted: int) -> None:
        nonlocal first
        now = time.perf_counter()
        first = first or (there, now)
        line = pace(there, wanted, there - first[0], now - first[1])
        if console.is_terminal:
            bar.update(task, completed=there, total=wanted, description=line)
        elif there % max(1, wanted // LINES) == 0 or there == wanted:
            console.print(line, soft_wrap=True, highlight=False)

    if console.is_terminal:
        with bar:
            yield progress
    else:
        yield progress


def pace(there: int, wanted: int, drawn: int, seconds: float) -> str:
    """How far it is, and from so many drawn in so many seconds how fast, and how long the rest is.

    >>> pace(there=500, wanted=2500, drawn=100, seconds=120.0)
    '500 of 2500 pictures, 50 a minute, 40:00 left'
    >>> pace(there=1, wanted=2, drawn=0, seconds=0.0)
    '1 of 2 pictures'
    """
    from setwise.cli.watch import clock

    said = f"{there} of {wanted} pictures"
    if not drawn:
        return said
    left = clock((wanted - there) * seconds / drawn)
    return f"{said}, {60 * drawn / seconds:.0f} a minute, {left} left"
