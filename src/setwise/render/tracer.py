"""Scenes drawn by PyTorch: a path tracer for many pictures at once, on the CPU or a GPU.

Legend: S scenes; W, H width and height in pixels; K points of a pixel.

The points of a pixel are spread evenly, and the same in all. What each of them sees comes first;
then light is followed, from all points of a pixel on an outline, and from a few of any other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from setwise.render.bodies import GROUND, Bodies, Rays, ground, unit
from setwise.render.chunks import DEVICES, Chunks
from setwise.render.lamps import axes_of
from setwise.render.light_paths import Paths
from setwise.render.scene import FIELD_OF_VIEW, Scene

_VERSION = 1
_FEWER = 8  # points of a pixel, to one that light is followed from
_FIRST = 8  # points of a pixel, by which outlines are found
# Points in a square by multiples of these: powers of 1 / 1.32471795724, the root of x^3 = x + 1.
_SPREAD = (0.7548776662466927, 0.5698402909980532)


class TorchRenderer:
    """Draws scenes as uint8 [H, W, 3], with ``samples`` points for each pixel.

    Its pictures are the same bytes however many are drawn at once.
    """

    def __init__(
        self,
        width: int,
        height: int,
        samples: int,
        device: torch.device | str = "cpu",
        threads: int | None = None,
    ) -> None:
        self.width, self.height, self.samples = width, height, samples
        self.device = drawing_device(device)
        self.chunks = Chunks(self.device)
        self._threads_before: int | None = None
        if threads is not None:
            self._threads_before = torch.get_num_threads()
            torch.set_num_threads(threads)

    @property
    def at_once(self) -> int:
        """How many scenes it is given best at once."""
        return self.chunks.scenes(self.width, self.height, self.samples)

    def __call__(self, scene: Scene) -> NDArray[np.uint8]:
        return self.many([scene])[0]

    def many(self, scenes: Sequence[Scene]) -> NDArray[np.uint8]:
        """Several scenes: [S, H, W, 3]."""
        pictures: NDArray[np.uint8] = self.draw(scenes).movedim(1, -1).cpu().numpy()
        return pictures

    @torch.no_grad()
    def draw(self, scenes: Sequence[Scene]) -> Tensor:
        """Several scenes as a tensor on the device: uint8 [S, 3, H, W]."""
        shape = (len(scenes), 3, self.height, self.width)
        pictures = torch.empty(shape, dtype=torch.uint8, device=self.device)
        done = 0

        def some() -> int:
            together = scenes[done : done + self.at_once]
            pictures[done : done + len(together)] = self._drawn(together)
            return len(together)

        while done < len(scenes):
            done += self.chunks.run(some)
        return pictures

    def close(self) -> None:
        """Give back threads that were set, which are those of the whole process, and memory.

        Of a GPU PyTorch would keep what was drawn in, from processes that are to train there next.
        """
        if self._threads_before is not None:
            torch.set_num_threads(self._threads_before)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _drawn(self, scenes: Sequence[Scene]) -> Tensor:
        bodies = Bodies(scenes, self.device)
        view = View(scenes, self.width, self.height, self.device)
        paths = Paths(scenes, bodies, self.device)
        pixels = len(scenes) * self.width * self.height
        where = torch.tensor(spread_points(self.samples), dtype=torch.float32, device=self.device)
        far = torch.zeros(self.samples, pixels, dtype=torch.float32, device=self.device)
        owner = torch.full_like(far, GROUND, dtype=torch.int8)
        everywhere = torch.arange(pixels, device=self.device)
        close = [
            part[bodies.close(view.rays(part, 0.5, 0.5), view.spread)]
            for part in everywhere.split(self.chunks.rays)
        ]
        turns = torch.arange(self.samples, device=self.device)
        few = math.ceil(self.samples / _FEWER)
        first = max(few, _FIRST)

        def look(some: Tensor, at: Tensor) -> None:
            for turn, part in self._parts(*_pairs(some, at)):
                far[turn, part], own = bodies.nearest(view.rays(part, *where[turn].unbind(-1)))
                owner[turn, part] = own.to(torch.int8)

        # The first points of a pixel tell whether an outline crosses it; if so, all are looked at.
        look(turns[:first], torch.cat(close))
        mixed = (owner[:first] != owner[0]).any(0)
        look(turns[first:], mixed.nonzero().squeeze(-1))
        light = far.new_zeros(3, self.samples, pixels)
        count = torch.where(mixed, self.samples, few)  # of points that light is followed from
        # Where nothing but open ground is, its middle is enough.
        bare = ((owner[0] == GROUND) & ~mixed).nonzero().squeeze(-1)
        for part in bare.split(self.chunks.rays):
            rays = view.rays(part, 0.5, 0.5)
            middle, calm = paths.open_ground(rays)
            light[:, 0, part[calm]] = middle[:, calm]
            count[part[calm]] = 0
        followed = turns[:, None] < count
        for turn, part in self._parts(*followed.nonzero().unbind(-1)):
            rays = view.rays(part, *where[turn].unbind(-1))
            own = owner[turn, part].long()
            along = torch.where(own == GROUND, ground(rays), far[turn, part])
            light[:, turn, part] = paths.followed(rays, along, own, view.keys(part), turn)
        total = far.new_zeros(3, pixels)
        for part in light.unbind(1):  # one after the other, so that sums are always the same
            total = total + part
        total = total / count.clamp(min=1)
        bytes_of = torch.bucketize(total, display_steps().to(self.device), right=True)
        shape = (3, len(scenes), self.height, self.width)
        return bytes_of.to(torch.uint8).reshape(shape).movedim(0, 1)

    def _parts(self, turn: Tensor, pixel: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """As many at once as there is room for."""
        size = self.chunks.rays
        yield from zip(turn.split(size), pixel.split(size), strict=True)


def device_of(name: torch.device | str) -> torch.device:
    """The device of a name, if pictures can be drawn on such a one."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device: expected cpu or cuda, got {name!r}") from error
    if device.type not in DEVICES:
        raise ValueError(f"device: expected cpu or cuda, got {str(device)!r}")
    return device


def drawing_device(name: torch.device | str) -> torch.device:
    """The device of a name, if it is here as well."""
    device = device_of(name)
    if device.type == "cuda" and (device.index or 0) >= (found := torch.cuda.device_count()):
        there = "no GPU" if not found else f"cuda:0 to cuda:{found - 1}"
        raise ValueError(f"device: {device} is not here (PyTorch finds {there}); use cpu")
    return device


@torch.no_grad()
def owners(
    scenes: Sequence[Scene], width: int, height: int, device: torch.device | str, grid: int = 1
) -> Tensor:
    """Whose each point is: int8 [S, grid H, grid W], ``grid`` by ``grid`` for each pixel.

    As `silhouette.visible_surfaces` says it for one scene; -1 is nobody's.
    """
    device = drawing_device(device)
    chunks = Chunks(device)

    def found() -> Tensor:
        bodies = Bodies(scenes, device)
        view = View(scenes, grid * width, grid * height, device)
        points = len(scenes) * grid * grid * width * height
        owner = torch.full((points,), GROUND, dtype=torch.int8, device=device)
        for part in torch.arange(points, device=device).split(chunks.rays):
            close = part[bodies.close(view.rays(part, 0.5, 0.5), 0.0)]
            owner[close] = bodies.nearest(view.rays(close, 0.5, 0.5))[1].to(torch.int8)
        return owner

    return chunks.run(found).reshape(len(scenes), grid * height, grid * width)


def _pairs(one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs of numbers [a] and [b]: [a b] each."""
    return one.repeat_interleave(len(other)), other.repeat(len(one))


def version() -> str:
    """What pictures depend on besides the scene."""
    return f"torch tracer {_VERSION}"


class View:
    """What the cameras of S scenes look at, by pixels that are counted scene by scene."""

    def __init__(
        self, scenes: Sequence[Scene], width: int, height: int, device: torch.device
    ) -> None:
        self._size = width, height
        self._step = math.tan(math.radians(FIELD_OF_VIEW) / 2) / (width / 2)
        self.spread = self._step  # of a pixel, from its middle to its corners, at most
        frames = [[scene.camera, *axes_of(scene.camera, scene.aim)] for scene in scenes]
        # [S, 4, 3] -> [4, 3, S]
        self._frames = torch.tensor(frames, dtype=torch.float64).movedim(0, -1)
        self._frames = self._frames.contiguous().to(device, torch.float32)
        noise = torch.tensor([scene.noise for scene in scenes], device=device)
        self._noise = noise * (width * height)

    def rays(self, pixel: Tensor, across: float | Tensor, down: float | Tensor) -> Rays:
        """Through pixels [R], at places within each that go from 0 to 1."""
        width, height = self._size
        scene, x, y = self._where(pixel)
        start, right, up, ahead = self._frames[..., scene]
        x = (x.float() + across - width / 2) * self._step
        y = (height / 2 - (y.float() + down)) * self._step
        return Rays(start, unit(ahead + x * right + y * up), scene)

    def keys(self, pixel: Tensor) -> Tensor:
        """A number for each pixel, of the noise of its scene and its place there."""
        width, height = self._size
        return self._noise[pixel // (width * height)] + pixel % (width * height)

    def _where(self, pixel: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        width, height = self._size
        place = pixel % (width * height)
        return pixel // (width * height), place % width, place // width


def spread_points(count: int) -> list[tuple[float, float]]:
    """Points that fill a square evenly.

    >>> spread_points(1)
    [(0.5, 0.5)]
    """
    x, y = _SPREAD
    return [((0.5 + turn * x) % 1, (0.5 + turn * y) % 1) for turn in range(count)]


def display_steps() -> Tensor:
    """From which light on each byte but the first is shown [255]; see `light.display`."""
    curve = (torch.arange(1, 256, dtype=torch.float64) - 0.5) / 255
    linear = torch.where(curve <= 0.040449936, curve / 12.92, ((curve + 0.055) / 1.055) ** 2.4)
    return linear.float()
