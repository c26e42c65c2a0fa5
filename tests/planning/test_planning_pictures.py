"""Pictures of plans: what is drawn is what was decoded, and the files are whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import setwise as sw
from setwise.planning import validate
from setwise.planning.pictures import crossfade, write_animation, write_strip
from setwise.planning.show import captions_of
from setwise.worlds import PuzzleWorld
from setwise.worlds.tiles import CELL, _digit, draw_move, draw_states

EIGHT = PuzzleWorld()
EDGE = 3
AMBER, RED = (255, 176, 0), (225, 30, 40)


def cell(picture: np.ndarray, x: int, y: int) -> np.ndarray:  # type: ignore[type-arg]
    top, left = EDGE + y * CELL, EDGE + x * CELL
    return picture[top : top + CELL, left : left + CELL]


def has(picture: np.ndarray, colour: tuple[int, int, int]) -> bool:  # type: ignore[type-arg]
    return bool((picture == colour).all(-1).any())


def plan() -> Tensor:
    """Objects of three states: tile 1 goes left, tile 4 goes up."""
    states = [[0, 1, 2, 3, 4, 5, 6, 7, 8], [1, 0, 2, 3, 4, 5, 6, 7, 8], [1, 4, 2, 3, 0, 5, 6, 7, 8]]
    return EIGHT.objects(torch.tensor(states))


def test_digits_are_all_different_and_legible() -> None:
    shapes = [_digit(digit).astype(float) / 255 for digit in range(10)]
    for one, shape in enumerate(shapes):
        assert 0.1 < shape.mean() < 0.4  # strokes on black
        assert (shape > 0.95).mean() > 0.08
        for other in shapes[:one]:
            assert np.abs(shape - other).mean() > 0.05


def test_tiles_lie_where_the_objects_say() -> None:
    pictures = draw_states(EIGHT, plan())
    assert pictures.shape == (3, 3 * CELL + 2 * EDGE, 3 * CELL + 2 * EDGE, 3)
    assert pictures.dtype == np.uint8
    inner = slice(6, CELL - 6)
    for number, blank in enumerate([(0, 0), (1, 0), (1, 1)]):
        for x in range(3):
            for y in range(3):
                ink = cell(pictures[number], x, y)[inner, inner].max()
                assert (ink == 0) == ((x, y) == blank)
    # The same tile looks the same on another cell.
    before, after = cell(pictures[0], 1, 0), cell(pictures[1], 0, 0)
    assert np.array_equal(before[inner, inner], after[inner, inner])


def test_the_order_of_objects_does_not_matter() -> None:
    assert np.array_equal(draw_states(EIGHT, plan()), draw_states(EIGHT, sw.shuffle_sets(plan())))


def test_the_tile_that_moved_stands_out() -> None:
    pictures = draw_states(EIGHT, plan())
    assert not has(pictures[0], AMBER)
    marked = [
        [(x, y) for x in range(3) for y in range(3) if has(cell(picture, x, y), AMBER)]
        for picture in pictures
    ]
    assert marked == [[], [(0, 0)], [(1, 0)]]
    assert not any(has(picture, RED) for picture in pictures)


def test_what_is_no_state_is_drawn_as_it_is() -> None:
    objects = plan()
    objects[1, 5, :9] = objects[1, 7, :9]  # a second tile 7 where tile 5 should be
    objects[2, 8, 9:] = objects[2, 6, 9:]  # tile 8 on the cell of tile 6
    _, twice, shared = draw_states(EIGHT, objects)
    assert [(x, y) for x in range(3) for y in range(3) if has(cell(twice, x, y), RED)] == [
        (1, 2),
        (2, 1),
    ]
    assert has(cell(shared, 2, 2), RED)  # nothing claims this cell
    half = CELL // 2
    both = cell(shared, 0, 2)[:half]
    assert both[8:-8, 8 : half - 8].max() > 200
    assert both[8:-8, half + 8 : -8].max() > 200


def test_tiles_on_their_way() -> None:
    objects = plan()
    frames = draw_move(EIGHT, objects[0], objects[1])
    assert len(frames) > 4
    columns = [int((frame == AMBER).all(-1).nonzero()[1].min()) for frame in frames]
    assert columns == sorted(columns, reverse=True)  # to the left
    assert len(set(columns)) == len(columns)
    assert not any(has(frame, RED) for frame in frames)
    objects[1, 5] = objects[1, 7]
    assert len(draw_move(EIGHT, objects[0], objects[1])) == 0


def test_captions_say_what_is_done_and_what_is_wrong() -> None:
    objects = plan()
    right = validate(EIGHT, objects, objects[0], objects[2])
    assert captions_of(EIGHT, right) == (
        ["0: init", "1: tile 1 goes left", "2: tile 4 goes up, goal"],
        set(),
    )
    jump = objects[[0, 2, 1]]
    captions, wrong = captions_of(EIGHT, validate(EIGHT, jump, objects[0], objects[2]))
    assert captions == ["0: init", "1: illegal step", "2: tile 4 goes down, wrong goal"]
    assert wrong == {1, 2}
    objects[1, 5] = objects[1, 7]
    broken = validate(EIGHT, objects, objects[0], objects[2])
    assert captions_of(EIGHT, broken) == (["0: init", "1: illegal state", "2: goal"], {1})


@pytest.mark.parametrize("count", [1, 3, 15])
def test_a_strip_holds_every_picture(tmp_path: Path, count: int) -> None:
    random = np.random.default_rng(0)
    pictures = random.integers(0, 255, (count, 40, 100, 3), dtype=np.uint8)
    path = tmp_path / "new" / "strip.png"
    write_strip(path, pictures, [f"{n}: a longer line of text" for n in range(count)], wrong={0})
    sheet = np.asarray(Image.open(path).convert("RGB"))
    assert has(sheet, (190, 20, 30))
    windows = np.lib.stride_tricks.sliding_window_view(sheet, (40, 100, 3))[:, :, 0]
    corners = windows[..., 0, :3, :]
    for picture in pictures:
        rows, columns = (corners == picture[0, :3]).all((-1, -2)).nonzero()
        assert any(
            np.array_equal(windows[y, x], picture) for y, x in zip(rows, columns, strict=True)
        )
    assert [p.name for p in path.parent.iterdir()] == ["strip.png"]


@pytest.mark.parametrize("name", ["plan.gif", "plan.png"])
def test_an_animation_passes_every_state(tmp_path: Path, name: str) -> None:
    objects = plan()
    pictures = draw_states(EIGHT, objects)
    path = tmp_path / name
    write_animation(
        path,
        pictures,
        ["init", "one", "two"],
        between=lambda step: draw_move(EIGHT, objects[step - 1], objects[step]),
    )
    with Image.open(path) as movie:
        frames, still = [], []
        for number in range(movie.n_frames):
            movie.seek(number)
            frames.append(np.asarray(movie.convert("RGB"), dtype=np.int16))
            if movie.info["duration"] > 500:
                still.append(number)
        assert movie.info.get("loop") == 0
    between = len(draw_move(EIGHT, objects[0], objects[1]))
    assert len(frames) == 3 + 2 * between
    assert still == [0, between + 1, 2 * between + 2]
    height, width = pictures.shape[1:3]
    for number, picture in zip(still, pictures, strict=True):
        shown = frames[number][8 : 8 + height, 8 : 8 + width]
        assert np.abs(shown - picture).max() <= (40 if name.endswith("gif") else 0)


def test_one_picture_fades_into_the_next(tmp_path: Path) -> None:
    dark, light = np.zeros((4, 5, 3), np.uint8), np.full((4, 5, 3), 200, np.uint8)
    levels = crossfade(dark, light)[:, 0, 0, 0].tolist()
    assert levels == sorted(levels)
    assert levels[0] > 0
    assert levels[-1] < 200
    write_animation(tmp_path / "fade.png", np.stack([dark, light]), ["", ""])
    with Image.open(tmp_path / "fade.png") as movie:
        assert movie.n_frames == 2 + len(levels)


def test_bad_calls(tmp_path: Path) -> None:
    pictures = np.zeros((2, 4, 5, 3), np.uint8)
    with pytest.raises(ValueError, match=r"^pictures: expected uint8 .* got float64"):
        write_strip(tmp_path / "a.png", pictures / 1.0, ["", ""])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^captions: expected one for each of 2"):
        write_strip(tmp_path / "a.png", pictures, [""])
    with pytest.raises(ValueError, match=r"^path: .* got a\.webm"):
        write_animation(tmp_path / "a.webm", pictures, ["", ""])
    assert not list(tmp_path.iterdir())
