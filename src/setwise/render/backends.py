"""The renderers by name, loaded when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from setwise.data.checks import require_int
from setwise.render.scene import Scene

RendererName = Literal["mitsuba", "blender", "torch", "sketch"]
_PACKAGES = {"mitsuba": "mitsuba", "drjit": "mitsuba", "PIL": "pillow"}  # by module


class Renderer(Protocol):
    """Draws a scene as uint8 [height, width, 3]; the same scene always gives the same bytes."""

    def __call__(self, scene: Scene) -> NDArray[np.uint8]: ...

    def close(self) -> None: ...


@runtime_checkable
class BatchRenderer(Renderer, Protocol):
    """One that takes less time for several scenes at once."""

    @property
    def at_once(self) -> int:
        """How many scenes it is given best."""

    def many(self, scenes: Sequence[Scene]) -> NDArray[np.uint8]:
        """Draws each as it would alone: uint8 [S, height, width, 3]."""


@contextmanager
def open_renderer(
    name: RendererName = "mitsuba",
    *,
    width: int = 300,
    height: int = 200,
    samples: int = 32,
    threads: int | None = None,
    blender: str | Path | None = None,
    device: str = "cpu",
) -> Iterator[Renderer]:
    """A renderer for pictures of one size, ``with open_renderer() as draw: image = draw(scene)``.

    ``samples`` is the number of rays for each pixel; mitsuba rounds it up to eight times a square,
    sketch to a square. Noise falls about with its square root. ``threads``, by default all cores,
    change no byte. ``blender`` is the program to run where it is not on the PATH, ``device`` where
    the renderer torch draws, such as ``"cuda"``; the others draw on the CPU.
    """
    require_picture(width, height, samples)
    if threads is not None:
        require_int("threads", threads, 1)
    require_device(name, device)
    with closing(_open(name, width, height, samples, threads, blender, device)) as renderer:
        yield renderer


def require_picture(width: int, height: int, samples: int) -> None:
    """Refuse what no picture can have."""
    for what, value in (("width", width), ("height", height), ("samples", samples)):
        require_int(what, value, 1)


def require_device(name: RendererName, device: str, *, here: bool = True) -> None:
    """Refuse a device that a renderer cannot draw on, or that is missing, if it draws ``here``."""
    require_renderer(name)
    if name == "torch":
        from setwise.render.tracer import device_of, drawing_device

        (drawing_device if here else device_of)(device)
    elif device != "cpu":
        raise ValueError(
            f"device: {name} draws on the cpu, not on {device}; use the renderer torch"
        )


def renderer_version(name: RendererName, blender: str | Path | None = None) -> str:
    """The program behind a renderer and its version; another one may draw other noise."""
    with _named_extra(name):
        if name == "mitsuba":
            from setwise.render import mitsuba

            return mitsuba.version()
        if name == "sketch":
            from setwise.render import sketch

            return sketch.version()
        if name == "torch":
            from setwise.render import tracer

            return tracer.version()
        from setwise.render import blender as program

        return program.version(blender)


def _open(
    name: RendererName,
    width: int,
    height: int,
    samples: int,
    threads: int | None,
    blender: str | Path | None,
    device: str,
) -> Renderer:
    with _named_extra(name):
        if name == "mitsuba":
            from setwise.render.mitsuba import MitsubaRenderer

            return MitsubaRenderer(width, height, samples, threads)
        if name == "sketch":
            from setwise.render.sketch import SketchRenderer

            return SketchRenderer(width, height, samples)
        if name == "torch":
            from setwise.render.tracer import TorchRenderer

            return TorchRenderer(width, height, samples, device, threads)
        from setwise.render.blender import BlenderRenderer

        return BlenderRenderer(width, height, samples, threads, blender)


def require_renderer(name: str) -> None:
    """An error unless there is a renderer of this name."""
    if name not in get_args(RendererName):
        known = ", ".join(get_args(RendererName))
        raise ValueError(f"renderer: expected one of {known}, got {name!r}")


@contextmanager
def _named_extra(name: str) -> Iterator[None]:
    """Refuse unknown renderers, and say what to install where a package is missing."""
    require_renderer(name)
    try:
        yield
    except ModuleNotFoundError as error:
        package = _PACKAGES.get(error.name or "")
        if package is None:
            raise
        raise ModuleNotFoundError(
            f"the renderer {name} needs {package}; install it with pip install 'setwise[render]'",
            name=error.name,
        ) from error
