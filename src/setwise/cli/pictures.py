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
) -> tuple[Path, BlocksworldArchive]:
    """Draw so many states, None for all, except those the folder has; then write their archive.

    The states come from the seed of the settings.
    """
    from setwise.data.blocksworld_archive import archive_name
    from setwise.render import collect, render_states

    world = settings.environment.world
    try:
        if states is None:
            states = len(world.states())  # refuses a world with too many
        wanted = world.sample(states, settings.seed)
        with _shown(console, len(wanted)) as progress:
            render_states(
                settings, wanted, folder, workers=workers, blender=blender, progress=progress
            )
        found = collect(world, wanted, folder)
    except (ValueError, RuntimeError, FileNotFoundError) as error:
        raise CommandError(str(error)) from error
    path = folder / archive_name(states)
    found.write(path)
    return path, found


def with_pictures(
    configs: Sequence[Config], folder: Path, console: Console, done: Collection[Config]
) -> list[Config]:
    """The configs bound to the pictures they need, which are drawn if they are not there.

    Where all that need the same pictures are ``done``, nothing is left to do with these: the
    configs are bound to the pictures they were done with then, wherever those are.
    """
    bound: dict[DataConfig, DataConfig] = {}
    for data in dict.fromkeys(config.data for config in configs):
        bound[data] = data
        if isinstance(data, BlocksData):
            alike = [config for config in configs if config.data == data]
            bound[data] = _done_with(data, alike, folder, done) or _drawn(data, folder, console)
    return [replace(config, data=bound[config.data]) for config in configs]


def _done_with(
    data: BlocksData, configs: Sequence[Config], folder: Path, done: Collection[Config]
) -> BlocksData | None:
    """The data that all these configs were done with, if there are such and no pictures here."""
    if data.archive(folder).exists():
        return None
    known = {own.data.sha256 for own in done if isinstance(own.data, BlocksData)}
    for sha256 in sorted(known):
        same = replace(data, sha256=sha256)
        if all(replace(config, data=same) in done for config in configs):
            return same
    return None


def settings_of(wanted: BlocksData | argparse.Namespace) -> Settings:
    """What pictures are drawn with; the options of a command are named like the fields of data."""
    from setwise.data.blocksworld import Blocksworld
    from setwise.render import Environment, Settings

    return Settings(
        Environment.draw(Blocksworld(wanted.blocks, wanted.stacks), wanted.seed),
        renderer=wanted.renderer,
        seed=wanted.seed,
        width=wanted.width,
        height=wanted.height,
        samples=wanted.samples,
    )


def _drawn(data: BlocksData, folder: Path, console: Console) -> BlocksData:
    archive = data.archive(folder)
    if not archive.exists():
        console.print(f"drawing {data.states} pictures into {archive.parent}", highlight=False)
        draw_archive(settings_of(data), data.states, archive.parent, console)
    try:
        return data.bound(folder)
    except ValueError as error:
        raise CommandError(str(error)) from error


@contextmanager
def _shown(console: Console, wanted: int) -> Iterator[Progress]:
    """What to call after each picture: a bar in a terminal, a line now and then elsewhere."""
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(BarColumn(20), TextColumn("{task.description}"), console=console, transient=True)
    task = bar.add_task(f"{wanted} pictures", total=wanted)
    first: tuple[int, float] | None = None  # how many were there when the first was drawn, and when

    def progress(there: int, wanted: int) -> None:
        nonlocal first
        now = time.perf_counter()
        first = first or (there, now)
        line = pace(there, wanted, there - first[0], now - first[1])
        if console.is_terminal:
            bar.update(task, completed=there, description=line)
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
