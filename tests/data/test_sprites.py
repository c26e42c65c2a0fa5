"""Sprites: pictures show their objects, all of them, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from setwise.data.sprites import COLOURS, SHAPES, SIZES, SPRITE, draw_sprites, sprites


def sprite(shape: str, colour: str, size: str, x: float, y: float) -> Tensor:
    classes = [SHAPES.index(shape), list(COLOURS).index(colour), list(SIZES).index(size)]
    parts = [torch.eye(block.width)[k] for block, k in zip(SPRITE.blocks, classes, strict=False)]
    return torch.cat([*parts, torch.tensor([x, y])])


def drawn(*objects: Tensor, side: int = 64) -> Tensor:
    valid = torch.ones(1, len(objects), dtype=torch.bool)
    return draw_sprites(torch.stack(objects).unsqueeze(0), valid, side)[0]


def coloured(picture: Tensor, colour: str) -> Tensor:
    """Which pixels [S, S] have just this colour."""
    return (picture - torch.tensor(COLOURS[colour])[:, None, None]).abs().amax(0) < 1e-4


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_sprite_has_its_area_in_its_place(shape: str, size: str) -> None:
    picture = drawn(sprite(shape, "green", size, 0.25, -0.5), side=256)
    ground = drawn(sprite(shape, "green", size, 9.0, 9.0), side=256)  # out of sight
    assert len(ground.unique()) == 1
    green, dark = torch.tensor(COLOURS["green"])[1], ground[1, 0, 0]
    cover = (picture[1] - dark) / (green - dark)
    radius = SIZES[size] * 128  # pixels
    height = 3 * 0.65 * radius  # of a triangle whose middle is this far from its sides
    areas = {
        "square": (1.8 * radius) ** 2,
        "disc": math.pi * radius**2,
        "triangle": height**2 / math.sqrt(3),
    }
    assert cover.sum() == pytest.approx(areas[shape], rel=0.02)
    rows, columns = torch.nonzero(cover > 0.5).double().mean(0) + 0.5
    assert columns == pytest.approx(128 * 1.25, abs=0.5)
    assert rows == pytest.approx(128 * 0.5, abs=0.5)


def test_large_ones_hide_no_small_one_and_absent_ones_are_not_drawn() -> None:
    small, large = (
        sprite("disc", c, s, 0.0, 0.0) for c, s in [("red", "small"), ("blue", "large")]
    )
    alone = coloured(drawn(small), "red").sum()
    for order in ([small, large], [large, small]):
        picture = drawn(*order)
        assert coloured(picture, "red").sum() == alone > 0
        assert coloured(picture, "blue").sum() > 0
    absent = torch.tensor([[True, False]])
    picture = draw_sprites(torch.stack([small, large]).unsqueeze(0), absent)
    assert picture[0].equal(drawn(small))


def test_scenes_show_every_object() -> None:
    pictures, objects, valid = sprites(40, torch.Generator().manual_seed(0))
    assert pictures.shape == (40, 3, 64, 64)
    assert 0 <= pictures.min() < pictures.max() <= 1
    counts = valid.sum(-1)
    assert (counts.min(), counts.max()) == (3, 10)
    SPRITE.check_targets("objects", objects)
    places = objects[..., -2:]
    assert places.abs().max() < 0.85
    apart = torch.cdist(places, places) + 9 * torch.eye(10)
    assert apart.min() > 0.2
    # Without an object its picture is another one, whatever else stands in it.
    for m in range(10):
        others = valid & (torch.arange(10) != m)
        changed = (draw_sprites(objects, others) != pictures).flatten(1).any(dim=1)
        assert changed.equal(valid[:, m])
    redrawn = draw_sprites(objects.flip(1), valid.flip(1))
    assert (redrawn != pictures).float().mean() < 0.05  # order matters where two overlap alone


def test_a_seed_decides_all_and_any_number_of_objects_will_do() -> None:
    one, other = (sprites(5, torch.Generator().manual_seed(3), side=16) for _ in range(2))
    assert all(a.equal(b) for a, b in zip(one, other, strict=True))
    _, _, valid = sprites(50, torch.Generator().manual_seed(0), least=0, most=1, side=8)
    assert 0 < valid.sum() < 50
    for name, value in {"number": -1, "side": 0, "least": -1, "most": 0}.items():
        with pytest.raises(ValueError, match=f"{name}: must be at least .*got {value}"):
            sprites(**{"number": 1} | {name: value})
    with pytest.raises(TypeError, match="most: expected an int, got float"):
        sprites(1, most=2.5)  # type: ignore[arg-type]
    for least, most in [(3, 2), (1, 17)]:
        with pytest.raises(ValueError, match=f"least, most: .*got {least} and {most}"):
            sprites(1, least=least, most=most)
