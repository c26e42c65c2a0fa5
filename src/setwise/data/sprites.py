"""Sprites: pictures of a few objects, drawn on the fly on any device, and the sets they show.

Legend: B pictures, M places for objects, F features, S pixels along each side of a picture.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from setwise.data.checks import require_int
from setwise.features import Categorical, Features, Gaussian

COLOURS = {
    "red": (0.90, 0.15, 0.15),
    "green": (0.15, 0.75, 0.20),
    "blue": (0.20, 0.35, 0.95),
    "yellow": (0.95, 0.85, 0.15),
    "purple": (0.60, 0.20, 0.80),
    "cyan": (0.20, 0.80, 0.85),
    "orange": (0.95, 0.55, 0.10),
    "white": (0.95, 0.95, 0.95),
}
SHAPES = ("square", "disc", "triangle")
SIZES = {"small": 0.14, "large": 0.24}  # half of a side; pictures span 2

# An object: its shape, colour and size, and x and y of its middle, from -1 to 1. The scale is wide:
# if places cost much more than looks, outputs share out the places before they see what is there.
SPRITE = Features(
    Categorical(len(SHAPES)),
    Categorical(len(COLOURS)),
    Categorical(len(SIZES)),
    Gaussian(2, scale=0.4),
)

# Objects stand in different cells of a board of so many by so many, off the middle of a cell by up
# to this share of its side: two of them may overlap, but every one can be seen.
_BOARD = 4
_OFF = 0.25
_SPAN = 0.85  # of the board, from the middle of a picture
_GROUND = 0.08


class Scenes(NamedTuple):
    """Pictures and the sets of objects that they show, in a random order."""

    pictures: Tensor  # [B, 3, S, S], from 0 to 1
    objects: Tensor  # [B, M, F], elements of SPRITE
    valid: Tensor  # [B, M], which of them there are


def sprites(
    number: int,
    generator: torch.Generator | None = None,
    *,
    side: int = 64,
    least: int = 3,
    most: int = 10,
) -> Scenes:
    """New scenes of ``least`` to ``most`` objects each, on the device of the generator.

    >>> pictures, objects, valid = sprites(2, torch.Generator().manual_seed(0), most=5)
    >>> pictures.shape, objects.shape, valid.sum(-1)
    (torch.Size([2, 3, 64, 64]), torch.Size([2, 5, 15]), tensor([4, 3]))
    """
    require_int("side", side, 1)
    objects, valid = sprite_objects(number, generator, least=least, most=most)
    return Scenes(draw_sprites(objects, valid, side), objects, valid)


def sprite_objects(
    number: int, generator: torch.Generator | None = None, *, least: int = 3, most: int = 10
) -> tuple[Tensor, Tensor]:
    """The objects [B, M, F] of new scenes, and which of them [B, M] there are; see `sprites`."""
    require_int("number", number, 0)
    require_int("least", least, 0)
    require_int("most", most, 1)
    cells = _BOARD**2
    if not least <= most <= cells:
        raise ValueError(f"least, most: expected least <= most <= {cells}, got {least} and {most}")
    device = None if generator is None else generator.device
    looks = SPRITE.random_targets((number, most), generator)[..., :-2]
    keys = torch.rand(number, cells, generator=generator, device=device)
    cell = keys.argsort(dim=-1)[:, :most]  # no two in the same
    off = _OFF * (2 * torch.rand(number, most, 2, generator=generator, device=device) - 1)
    middles = torch.stack([cell % _BOARD, cell // _BOARD], dim=-1) + 0.5 + off
    objects = torch.cat([looks, _SPAN * (middles * (2 / _BOARD) - 1)], dim=-1)
    counts = torch.randint(least, most + 1, (number, 1), generator=generator, device=device)
    return objects, torch.arange(most, device=device) < counts


def draw_sprites(objects: Tensor, valid: Tensor, side: int = 64) -> Tensor:
    """Paint objects [B, M, F], those that are valid [B, M]: pictures [B, 3, side, side].

    Large ones first, so that they hide no small one.
    """
    # By size, and in the order given among equals.
    large = SPRITE.split(objects)[2].argmax(-1)
    order = large.argsort(dim=-1, descending=True, stable=True)
    objects = objects.gather(1, order.unsqueeze(-1).expand_as(objects))
    shape, colour, size, middle = SPRITE.split(objects)
    palette = objects.new_tensor(list(COLOURS.values()))
    inks = (colour @ palette)[..., None, None]  # [B, M, 3, 1, 1]
    radii = (size @ objects.new_tensor(list(SIZES.values())))[..., None, None]
    shown = valid.gather(1, order)[..., None, None]
    pixel = 2 / side
    axis = (torch.arange(side, device=objects.device) + 0.5) * pixel - 1
    pictures = objects.new_full((len(objects), 3, side, side), _GROUND)
    for m in range(objects.shape[1]):
        dx = axis - middle[:, m, 0, None, None]  # [B, 1, S]
        dy = axis.unsqueeze(-1) - middle[:, m, 1, None, None]  # [B, S, 1]
        outside = (shape[:, m, :, None, None] * _distances(dx, dy, radii[:, m])).sum(1)
        # A pixel that an edge crosses takes its share of both colours.
        cover = ((0.5 - outside / pixel).clamp(0, 1) * shown[:, m]).unsqueeze(1)
        pictures = torch.lerp(pictures, inks[:, m].expand_as(pictures), cover)
    return pictures


def _distances(dx: Tensor, dy: Tensor, radius: Tensor) -> Tensor:
    """How far pixels lie outside of each of the `SHAPES`: [B, 3, S, S]; negative inside."""
    square = torch.maximum(dx.abs(), dy.abs()) - 0.9 * radius
    disc = torch.hypot(dx, dy) - radius
    # Equilateral, pointing up; y grows downwards.
    triangle = torch.maximum((math.sqrt(3) * dx.abs() - dy) / 2, dy) - 0.65 * radius
    return torch.stack([square, disc, triangle], dim=1)
