"""Draw many scenes on all cores, so that it can be stopped at any moment and goes on later.

Legend: S states, N blocks. Each picture depends on the settings and its state alone, so that
neither the number of processes nor a restart nor the order of the states changes a byte.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from setwise.data.checks import require_int
from setwise.executors import Executor, ExecutorError, LocalExecutor, StoppedError, Work
from setwise.files import alone
from setwise.render import files
from setwise.render.backends import (
    BatchRenderer,
    RendererName,
    open_renderer,
    renderer_version,
    require_device,
    require_picture,
    require_renderer,
)
from setwise.render.environment import Environment
from setwise.render.finish import Drawing, Picture, finished
from setwise.render.scene import Scene, scene_of
from setwise.render.silhouette import require_in_frame

Progress = Callable[[int, int], None]  # pictures there, pictures wanted
Program = str | Path | None
SHARE = 16  # pictures at once, where many machines draw


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
        require_picture(self.width, self.height, self.samples)
        require_in_frame(self.environment, self.width, self.height)

    def scene(self, number: int) -> Scene:
        """The scene of the state of this rank."""
        return scene_of(self.environment, self._state(number), self.seed)

    def scenes(self, numbers: Sequence[int], device: str = "cpu") -> list[Scene]:
        """Those of several."""
        return [self.scene(number) for number in numbers]

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

    def scenes(self, numbers: Sequence[int], device: str = "cpu") -> list[Scene]:
        """The scenes of numbers, which follow from these and the settings, and nothing else.

        On the device, where there is much to compute.
        """

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
    executor: Executor | None = None,
    device: str = "cpu",
) -> None:
    """Draw states [S, N, 3] into a folder, by their ranks; see `render_scenes`."""
    numbers = settings.environment.world.rank(states).flatten().tolist()
    render_scenes(
        settings,
        numbers,
        folder,
        workers=workers,
        blender=blender,
        progress=progress,
        executor=executor,
        device=device,
    )


def render_scenes(
    settings: Drawn,
    numbers: Iterable[int],
    folder: str | Path,
    *,
    workers: int | None = None,
    blender: Program = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    device: str = "cpu",
) -> None:
    """Draw scenes into a folder (see `setwise.render.files`), except those it has.

    ``workers`` processes share the work, by default one for each core, unless it is that of an
    ``executor``, whose machines need the same version of the renderer. A GPU draws for this process
    alone, many at once, and the others write down what is in the pictures. ``progress`` is called
    after each picture with how many of how many are there; ``blender`` is the program to run if
    it is not on the PATH, and ``device`` where the renderer torch draws. A script that calls this
    needs ``if __name__ == "__main__":``, because the processes start by importing it.
    """
    folder = Path(folder)
    numbers = list(dict.fromkeys(numbers))
    workers = _cores() if workers is None else workers
    require_int("workers", workers, 1)
    require_device(settings.renderer, device, here=executor is None)
    version = renderer_version(settings.renderer, blender)
    kind = torch.device(device).type
    # Of each picture, for a folder may be begun on one and finished on another.
    where = {"device": kind} if settings.renderer == "torch" else {}
    with alone(folder / ".lock", "drawing into it"):
        files.prepare(folder, asdict(settings) | {"version": version})
        missing = [number for number in numbers if not files.finished(folder, number)]

        def save(work: Work, picture: Picture) -> None:
            number, image, description = picture
            if number not in left:
                return  # drawn twice, where work was lost
            files.save(folder, number, image, description | where)
            left.remove(number)
            if progress is not None:
                progress(len(numbers) - len(left), len(numbers))

        on_gpu = kind == "cuda"
        drawn_here = on_gpu and executor is None  # by one process: more would share its memory
        left = set(missing)
        # Of what a machine had drawn when it was lost, some may have to be drawn again.
        while left:
            before = len(left)
            rest = [number for number in missing if number in left]
            shares = _shares(rest, 1 if drawn_here else workers, executor)
            describing = workers if drawn_here else 1
            works = [
                Work(
                    "a process that draws",
                    draw_scenes,
                    (settings, share, version, blender, device, describing),
                    gpus=1.0 if on_gpu else 0.0,
                )
                for share in shares
            ]
            place = LocalExecutor(len(shares)) if executor is None else executor
            with closing(place.run(works, told=save, stop=lambda: False)) as ended:
                deque(ended, maxlen=0)
            if len(left) == before:
                raise ExecutorError(f"of {before} pictures none came back; start again")
        files.clean(folder)


def _shares(numbers: list[int], workers: int, executor: Executor | None) -> list[list[int]]:
    """One for each process, or small ones where these are to be spread."""
    shares = min(workers, len(numbers))
    if executor is not None and executor.spreads:
        shares = math.ceil(len(numbers) / SHARE)
    return [numbers[first::shares] for first in range(shares)]


def draw_scenes(
    settings: Drawn,
    numbers: list[int],
    version: str,
    blender: Program,
    device: str,
    processes: int,
    *,
    tell: Callable[[Picture], None],
    stop: Callable[[], bool],
) -> None:
    """Draw the scenes on one core or the device, and tell each; see `Work`.

    Beside this process ``processes``, if there are more than one, compress and describe them.
    """
    if (here := renderer_version(settings.renderer, blender)) != version:
        raise ValueError(f"renderer: expected {version}, as the other pictures, this is {here}")
    with open_renderer(
        settings.renderer,
        width=settings.width,
        height=settings.height,
        samples=settings.samples,
        threads=1,
        blender=blender,
        device=device,
    ) as draw:
        together = draw.at_once if isinstance(draw, BatchRenderer) else 1

        def drawings() -> Iterator[Drawing]:
            for first in range(0, len(numbers), together):
                if stop():
                    raise StoppedError
                some = numbers[first : first + together]
                scenes = settings.scenes(some, device)
                many = draw.many(scenes) if isinstance(draw, BatchRenderer) else map(draw, scenes)
                for drawn in zip(some, scenes, many, strict=True):
                    yield Drawing(*drawn)

        most = together + 2 * processes
        with closing(finished(drawings(), settings.describe, processes, most)) as pictures:
            for picture in pictures:
                tell(picture)


def _cores() -> int:
    """How many cores this process may use, where the system says; else all there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
