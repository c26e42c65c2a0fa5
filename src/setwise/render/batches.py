"""Pictures and the sets that they show, straight into tensors: no files, no packages but PyTorch.

Legend: B pictures, M places for objects, N blocks, F features; H, W height and width in pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from setwise.data.scenes import REACH, SceneArchive, classes_of, one_hots
from setwise.render.backends import require_picture
from setwise.render.environment import Environment
from setwise.render.scene import PlacedBlock, Scene, scene_of
from setwise.render.tabletop import SceneSettings
from setwise.render.tracer import TorchRenderer, owners

_GRID = 4  # points along each side of a pixel, by which boxes are found; as `silhouette.boxes`


class Pictures(NamedTuple):
    """Pictures and their sets, on the device that drew them."""

    pictures: Tensor  # uint8 [B, 3, H, W]
    objects: Tensor  # [B, M, F]
    valid: Tensor  # [B, M], which of them there are


def scene_pictures(
    settings: SceneSettings, numbers: Sequence[int], device: torch.device | str = "cpu"
) -> Pictures:
    """The scenes of some numbers and their objects, elements of `setwise.data.scenes.SCENE`.

    They are those of the archive that ``setwise data scenes`` makes with the same settings.

    >>> settings = SceneSettings(renderer="torch", width=16, height=16, samples=1, most=4)
    >>> pictures, objects, valid = scene_pictures(settings, range(2))
    >>> pictures.shape, objects.shape, valid.sum(-1)
    (torch.Size([2, 3, 16, 16]), torch.Size([2, 4, 18]), tensor([4, 4]))
    """
    parts = [
        Pictures(pictures, *_objects(scenes, settings.most, pictures.device))
        for scenes, pictures in _drawn(settings, numbers, device)
    ]
    return Pictures(*(torch.cat(part) for part in zip(*parts, strict=True)))


def scene_archive(
    settings: SceneSettings,
    pictures: int,
    device: torch.device | str = "cpu",
    progress: Callable[[int, int], None] | None = None,
) -> SceneArchive:
    """The archive of the first so many scenes, as ``setwise data scenes`` makes it."""
    drawn = np.empty((pictures, settings.height, settings.width, 3), dtype=np.uint8)
    described: list[list[dict[str, Any]]] = []
    for scenes, some in _drawn(settings, range(pictures), device):
        there = len(described)
        drawn[there : there + len(scenes)] = some.movedim(1, -1).cpu().numpy()
        described += [
            [_words(placed) | {"3d_coords": list(placed.location)} for placed in scene.blocks]
            for scene in scenes
        ]
        if progress is not None and scenes:
            progress(len(described), pictures)
    return SceneArchive.of(drawn, described)


def _drawn(
    settings: SceneSettings, numbers: Sequence[int], device: torch.device | str
) -> Iterator[tuple[list[Scene], Tensor]]:
    """Scenes and pictures of them, some at once; at least one, which may be of none."""
    if settings.renderer != "torch":
        raise ValueError(f"renderer: only torch draws into tensors, not {settings.renderer}")
    renderer = TorchRenderer(settings.width, settings.height, settings.samples, device)
    together = renderer.at_once
    for first in range(0, max(1, len(numbers)), together):
        some = numbers[first : first + together]
        scenes = settings.scenes(some, str(renderer.device))
        yield scenes, renderer.draw(scenes)


def block_pictures(
    environment: Environment,
    states: Tensor,
    seeds: Sequence[int],
    *,
    width: int = 300,
    height: int = 200,
    samples: int = 32,
    device: torch.device | str = "cpu",
) -> tuple[Tensor, Tensor, Tensor]:
    """States [B, N, 3] of the Blocksworld, each with the jitter of a seed.

    Gives pictures uint8 [B, 3, H, W], the classes of each block's look [B, N, 4] in the order of
    `setwise.data.scenes.WORDS`, and the boxes [B, N, 4] around what is seen of each.
    """
    if len(states) != len(seeds):
        raise ValueError(f"seeds: expected one for each of {len(states)} states, got {len(seeds)}")
    require_picture(width, height, samples)
    renderer = TorchRenderer(width, height, samples, device)
    device = renderer.device
    pictures, boxes, looks = [renderer.draw([])], [], []
    together = renderer.at_once
    for first in range(0, len(states), together):
        some = slice(first, first + together)
        pairs = zip(states[some].cpu(), seeds[some], strict=True)
        scenes = [scene_of(environment, state, seed) for state, seed in pairs]
        pictures.append(renderer.draw(scenes))
        owner = owners(scenes, width, height, device, grid=_GRID)
        boxes.append(boxes_of(owner, len(environment.blocks), _GRID))
        looks += [[classes_of(_words(placed)) for placed in scene.blocks] for scene in scenes]
    blocks = len(environment.blocks)
    classes = torch.tensor(looks, device=device).reshape(-1, blocks, 4)
    empty = torch.zeros(0, blocks, 4, dtype=torch.long, device=device)
    return torch.cat(pictures), classes, torch.cat([empty, *boxes])


def boxes_of(owner: Tensor, blocks: int, grid: int) -> Tensor:
    """Boxes [B, N, 4] around what is seen of each block, see `silhouette`; zeros where nothing is.

    ``owner`` [B, grid H, grid W] says whose each point is.
    """
    found = []
    for number in range(blocks):
        own = owner == number
        edges = []
        for dim in (1, 2):  # along columns, then along rows
            there = own.any(dim).int()
            first = there.argmax(-1)
            last = there.shape[-1] - there.flip(-1).argmax(-1) - 1
            edges.append((first // grid, last // grid + 1))
        (x1, x2), (y1, y2) = edges
        box = torch.stack([x1, y1, x2, y2], dim=-1)
        found.append(torch.where(own.flatten(1).any(-1, keepdim=True), box, 0))
    return torch.stack(found, dim=1)


def _objects(scenes: Sequence[Scene], most: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The objects [B, M, F] of scenes as elements, and which of them there are [B, M]."""
    classes = torch.zeros(len(scenes), most, 4, dtype=torch.long)
    places = torch.zeros(len(scenes), most, 3)
    valid = torch.zeros(len(scenes), most, dtype=torch.bool)
    for number, scene in enumerate(scenes):
        here = len(scene.blocks)
        looks = [classes_of(_words(placed)) for placed in scene.blocks]
        classes[number, :here] = torch.tensor(looks)
        places[number, :here] = torch.tensor([placed.location for placed in scene.blocks])
        valid[number, :here] = True
    return torch.cat([one_hots(classes), places / REACH], dim=-1).to(device), valid.to(device)


def _words(placed: PlacedBlock) -> dict[str, Any]:
    """A block in the words of `setwise.data.scenes.WORDS`."""
    block = placed.block
    looks = {"shape": block.shape, "color": block.colour, "size": block.size}
    return looks | {"material": placed.material}
