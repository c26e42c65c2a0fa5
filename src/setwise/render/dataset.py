"""Draw many scenes on all cores, so that it can be stopped at any moment and goes on later.

Legend: S states, N blocks. Each picture depends on the settings and its state alone, so that
neither the number of processes nor a restart nor the order of the states changes a byte.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from traceback import format_exc
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from setwise.data.checks import require_int
from setwise.files import alone
from setwise.outside import one_line
from setwise.render import files
from setwise.render.backends import (
    RendererName,
    open_renderer,
    renderer_version,
    require_renderer,
)
from setwise.render.environment import Environment
from setwise.render.scene import Scene, scene_of
from setwise.render.silhouette import require_in_frame

Progress = Callable[[int, int], None]  # pictures there, pictures wanted
Program = str | Path | None


@dataclass(frozen=True)
class Settings:
    """Everything that pictures depend on, except the renderer's version, which is recorded too."""

    environment: Environment
    renderer: RendererName = "mitsuba"
    seed: int = 0  # of the jitter of camera and lamps, and of the noise
    width: int = 300
    height: int = 200
    samples: int = 32  # rays for each pixel

    def __post_init__(self) -> None:
        require_renderer(self.renderer)
        require_int("seed", self.seed, 0)
        for name in ("width", "height", "samples"):
            require_int(name, getattr(self, name), 1)
        require_in_frame(self.environment, self.width, self.height)

    def scene(self, number: int) -> Scene:
        """The scene of the state of this rank."""
        return scene_of(self.environment, self._state(number), self.seed)

    def describe(self, number: int, scene: Scene) -> dict[str, Any]:
        """What is said beside its picture."""
        world, size = self.environment.world, (self.width, self.height)
        return files.describe(world, self._state(number), scene, *size)

    def _state(self, rank: int) -> Tensor:
        return self.environment.world.unrank(torch.tensor(rank))


class Drawn(Protocol):
    """What is to be drawn, and how: a dataclass, all of which goes to the settings of a folder."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def renderer(self) -> RendererName: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def samples(self) -> int: ...

    def scene(self, number: int) -> Scene:
        """The scene of a number, and of the settings, and of nothing else."""

    def describe(self, number: int, scene: Scene) -> dict[str, Any]:
        """What is said beside its picture, in values that JSON has."""


def render_states(
    settings: Settings,
    states: Tensor,
    folder: str | Path,
    *,
    workers: int | None = None,
    blender: Program = None,
    progress: Progress | None = None,
) -> None:
    """Draw states [S, N, 3] into a folder, by their ranks; see `render_scenes`."""
    numbers = settings.environment.world.rank(states).flatten().tolist()
    render_scenes(settings, numbers, folder, workers=workers, blender=blender, progress=progress)


def render_scenes(
    settings: Drawn,
    numbers: Iterable[int],
    folder: str | Path,
    *,
    workers: int | None = None,
    blender: Program = None,
    progress: Progress | None = None,
) -> None:
    """Draw scenes into a folder (see `setwise.render.files`), except those it has.

    ``workers`` processes share the work, by default one for each core. ``progress`` is called
    after each picture with how many of how many are there; ``blender`` is the program to run if
    it is not on the PATH. A script that calls this needs ``if __name__ == "__main__":``, because
    the processes start by importing it.
    """
    folder = Path(folder)
    numbers = list(dict.fromkeys(numbers))
    workers = _cores() if workers is None else workers
    require_int("workers", workers, 1)
    version = renderer_version(settings.renderer, blender)
    with alone(folder / ".lock", "drawing into it"):
        files.prepare(folder, asdict(settings) | {"version": version})
        missing = [number for number in numbers if not files.finished(folder, number)]
        first = len(numbers) - len(missing) + 1
        for there, _ in enumerate(_drawn(settings, missing, folder, workers, blender), first):
            if progress is not None:
                progress(there, len(numbers))
        files.clean(folder)


def _drawn(
    settings: Drawn, numbers: list[int], folder: Path, workers: int, blender: Program
) -> Iterator[int]:
    """Draw scenes, in as many processes as asked for; yields the number of each that is there."""
    if workers == 1 or len(numbers) < 2:
        yield from _draw(settings, numbers, folder, blender)
        return
    context = get_context("spawn")  # a fork would copy the locks of other threads
    processes, connections = [], []
    for first in range(min(workers, len(numbers))):
        ours, theirs = context.Pipe(duplex=False)
        share = numbers[first::workers]
        process = context.Process(target=_work, args=(theirs, settings, share, folder, blender))
        with _deaf_to_interrupts():
            process.start()
        theirs.close()
        processes.append(process)
        connections.append(ours)
    try:
        yield from _reports(connections)
    finally:
        for process in processes:
            process.terminate()
            process.join()


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes started within ignore Ctrl-C, which a terminal sends to all of a command's.

    The main process hears it and ends them; they would only complain.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # where the handling of signals cannot be changed
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _reports(connections: list[Connection]) -> Iterator[int]:
    """What the processes report until all have said that they are done."""
    while connections:
        for connection in wait(connections):
            assert isinstance(connection, Connection)
            try:
                report = connection.recv()
            except EOFError:
                raise RuntimeError(
                    "a process that draws was killed, perhaps for want of memory; "
                    "the pictures so far are kept, start again to go on"
                ) from None
            if isinstance(report, str):
                raise RuntimeError(f"a process that draws failed: {report}")
            if report is None:
                connections.remove(connection)
            else:
                yield report


def _work(
    reports: Connection, settings: Drawn, numbers: list[int], folder: Path, blender: Program
) -> None:
    """One process: a number after each picture, None at the end, or the text of an error."""
    try:
        for number in _draw(settings, numbers, folder, blender):
            reports.send(number)
        reports.send(None)
    except BrokenPipeError:
        return  # nobody is there to ask for more: the main process was killed
    except (OSError, RuntimeError, ValueError) as error:
        reports.send(one_line(error))
    except Exception:
        reports.send(format_exc())


def _draw(settings: Drawn, numbers: list[int], folder: Path, blender: Program) -> Iterator[int]:
    """Draw the scenes one after the other on one core; yields the number of each."""
    if not numbers:
        return
    with open_renderer(
        settings.renderer,
        width=settings.width,
        height=settings.height,
        samples=settings.samples,
        threads=1,
        blender=blender,
    ) as draw:
        for number in numbers:
            scene = settings.scene(number)
            files.save(folder, number, draw(scene), settings.describe(number, scene))
            yield number


def _cores() -> int:
    """How many cores this process may use, where the system says; else all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
