"""Pictures of puzzle states: tiles with handwritten digits on black.

Legend: P states of a plan, C cells and objects, F features, k pictures between two states, H, W
height and width of a picture.

What is drawn is what was decoded, legal or not: objects that share a cell share its room, an
object that occurs twice has a red edge, and a cell that no object claims is hatched. The tile that
moved last has an amber edge. The digits are some of those that scikit-learn carries (Alpaydin and
Kaynak, 1998), 8 x 8 pixels each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from setwise.data.puzzle import SlidingPuzzle
from setwise.worlds.drawing import Pictures

CELL = 72  # pixels along each side
_EDGE = 3
_STEPS = 9  # pictures of a tile on its way
# One for each digit, out of the 1797: typical of its class, and easy to read.
_CHOSEN = (1039, 466, 22, 345, 124, 365, 1261, 624, 654, 455)

_BLACK, _BOARD, _TILE = (0, 0, 0), (70, 70, 74), (96, 96, 100)
_MOVED, _WRONG = (255, 176, 0), (225, 30, 40)

Object = tuple[int, float, float]  # tile, x and y; between two cells while it moves


def draw_states(puzzle: SlidingPuzzle, objects: Tensor) -> Pictures:
    """The states of a plan, objects [P, C, F] in any order, as pictures [P, H, W, 3]."""
    states = _read(puzzle, objects)
    moved = [set[int]()] + [_moved(a, b) for a, b in pairwise(states)]
    return np.stack([_draw(puzzle, s, m) for s, m in zip(states, moved, strict=True)])


def draw_move(puzzle: SlidingPuzzle, before: Tensor, after: Tensor) -> Pictures:
    """The tiles on their way from one state, objects [C, F], to another: [k, H, W, 3].

    Nothing is on its way, k = 0, if some tile is missing or twice in one of them.
    """
    [start], [end] = _read(puzzle, before[None]), _read(puzzle, after[None])
    if not (_each_once(start) and _each_once(end)):
        return np.empty((0, *_size(puzzle), 3), dtype=np.uint8)
    pairs = list(zip(sorted(start), sorted(end), strict=True))
    frames = []
    for share in np.linspace(0, 1, _STEPS + 2)[1:-1].tolist():
        eased = share * share * (3 - 2 * share)
        places = [
            (tile, x + eased * (to_x - x), y + eased * (to_y - y))
            for (tile, x, y), (_, to_x, to_y) in pairs
        ]
        frames.append(_draw(puzzle, places, _moved(start, end), still=False))
    return np.stack(frames)


def _read(puzzle: SlidingPuzzle, objects: Tensor) -> list[list[Object]]:
    """The likeliest tile, x and y of every object."""
    tile, x, y = (block.argmax(-1).tolist() for block in puzzle.features.split(objects))
    return [list(zip(*state, strict=True)) for state in zip(tile, x, y, strict=True)]


def _each_once(state: Sequence[Object]) -> bool:
    return sorted(tile for tile, _, _ in state) == list(range(len(state)))


def _moved(before: Sequence[Object], after: Sequence[Object]) -> set[int]:
    """The tiles, without the blank, that are not where they were."""
    return {tile for tile, _, _ in set(after) - set(before) if tile != 0}


def _draw(
    puzzle: SlidingPuzzle, state: Sequence[Object], moved: set[int], still: bool = True
) -> Pictures:
    height, width = _size(puzzle)
    picture = Image.new("RGB", (width, height), _BOARD)
    draw = ImageDraw.Draw(picture)
    cells: dict[tuple[float, float], list[int]] = defaultdict(list)
    for tile, x, y in state:
        cells[x, y].append(tile)
    tiles = [tile for tile, _, _ in state]
    for y in range(puzzle.height):
        for x in range(puzzle.width):
            _draw_ground(draw, x, y, hatched=still and (x, y) not in cells)
    # The blank first and tiles on their way last: what is still is seen whole.
    for (x, y), here in sorted(cells.items(), key=lambda cell: not set(cell[1]) <= {0}):
        # Half-way, a tile and the blank pass each other: only what stays shares a cell.
        parts = 1 if len(here) == 1 or not still else 2 if len(here) <= 4 else 3
        side = CELL // parts
        for place, tile in enumerate(sorted(here)):
            column, row = (place % parts, place // parts) if still else (0, 0)
            left, top = (
                round(_EDGE + x * CELL) + column * side,
                round(_EDGE + y * CELL) + row * side,
            )
            twice = tiles.count(tile) > 1
            edge = _WRONG if twice else _MOVED if tile in moved else _TILE
            _draw_tile(picture, tile, left, top, side, edge, thick=twice or tile in moved)
    return np.asarray(picture)


def _draw_ground(draw: ImageDraw.ImageDraw, x: int, y: int, hatched: bool) -> None:
    left, top = _EDGE + x * CELL, _EDGE + y * CELL
    draw.rectangle((left, top, left + CELL - 1, top + CELL - 1), fill=_BLACK)
    if hatched:
        for offset in range(8, 2 * CELL, 12):
            start = (left + max(0, offset - CELL + 1), top + min(offset, CELL - 1))
            end = (left + min(offset, CELL - 1), top + max(0, offset - CELL + 1))
            draw.line((*start, *end), fill=_WRONG, width=2)


def _draw_tile(
    picture: Image.Image,
    tile: int,
    left: int,
    top: int,
    side: int,
    edge: tuple[int, int, int],
    thick: bool,
) -> None:
    """The blank is a dark hole, unless it occurs twice, which its edge then says."""
    if tile == 0 and edge != _WRONG:
        return
    draw = ImageDraw.Draw(picture)
    box = (left + 1, top + 1, left + side - 2, top + side - 2)
    draw.rectangle(box, fill=_BLACK, outline=edge, width=3 if thick else 1)
    if tile == 0:
        return
    digits = str(tile)
    size = (side - 12) // len(digits)
    for place, digit in enumerate(digits):
        shape = Image.fromarray(_digit(int(digit))).resize((size, size), Image.Resampling.LANCZOS)
        at = (left + 6 + place * size, top + (side - size) // 2)
        picture.paste((255, 255, 255), at, shape)


@cache
def _digit(digit: int) -> Pictures:
    """A digit, white on black [96, 96]: enlarged smoothly, then its edges made sharp again."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    small = np.pad(load_digits().images[_CHOSEN[digit]] / 16, 1)
    large = Image.fromarray((255 * small).astype(np.uint8)).resize(
        (96, 96), Image.Resampling.BICUBIC
    )
    ink = np.clip((np.asarray(large) / 255 - 0.25) / 0.5, 0, 1)
    shape: Pictures = (255 * ink * ink * (3 - 2 * ink)).round().astype(np.uint8)
    return shape


def _size(puzzle: SlidingPuzzle) -> tuple[int, int]:
    return puzzle.height * CELL + 2 * _EDGE, puzzle.width * CELL + 2 * _EDGE
