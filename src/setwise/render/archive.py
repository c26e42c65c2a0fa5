"""From settings to an archive: states are drawn, and their blocks cut out of the pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.data.blocksworld_archive import BlocksworldArchive, archive_name

if TYPE_CHECKING:
    from setwise.executors import Executor
    from setwise.render.dataset import Settings


def draw_archive(
    settings: Settings,
    states: int | None,
    folder: Path,
    *,
    workers: int | None = None,
    blender: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    executor: Executor | None = None,
    device: str = "cpu",
) -> tuple[Path, BlocksworldArchive]:
    """Draw so many states, None for all, except those the folder has; then write their archive.

    The states come from the seed of the settings. See `render_states` for the rest.
    """
    from setwise.render import collect, render_states  # which say what they need

    world = settings.environment.world
    if states is None:
        states = len(world.states())  # refuses a world with too many
    wanted = world.sample(states, settings.seed)
    render_states(
        settings,
        wanted,
        folder,
        workers=workers,
        blender=blender,
        progress=progress,
        executor=executor,
        device=device,
    )
    found = collect(world, wanted, folder)
    path = folder / archive_name(states)
    found.write(path)
    return path, found
