"""Lights Out, Hanoi and pushing, each against a second telling of its rules."""

from __future__ import annotations

import pytest
import torch

from setwise.planning import shortest_length
from setwise.worlds import WORLDS, Hanoi, LightsOut, Pushing


def test_they_are_found_by_name() -> None:
    assert [WORLDS[kind] for kind in ("lights", "hanoi", "pushing")] == [LightsOut, Hanoi, Pushing]


@pytest.mark.parametrize(
    ("world", "states"),
    [
        (LightsOut(3, 3), 512),
        (Hanoi(3), 27),
        (Pushing(4, 3, 1, walls=((2, 1), (0, 2))), 90),
    ],
)
def test_states_are_told_apart_by_their_objects(
    world: LightsOut | Hanoi | Pushing, states: int
) -> None:
    assert len(world.states()) == states
    for configuration in world.sample(20, seed=0):
        objects = world.objects(configuration).flip(0)
        assert world.configuration_of(objects).equal(configuration)
        assert len(world.describe(configuration)) > 0


def test_lights() -> None:
    world = LightsOut(3, 2)
    after, legal = world.successors(world.start())
    assert legal.all()
    assert [world.describe(one) for one in after[:2]] == ["* * . / * . .", "* * * / . * ."]
    twice, _ = world.successors(after)
    for press in range(6):  # what is pressed twice was never pressed
        assert twice[press, press].equal(world.start())


def test_hanoi_takes_two_to_the_disks_less_one() -> None:
    for disks in (2, 3, 4):
        world = Hanoi(disks)
        first = torch.zeros(disks, dtype=torch.int64)
        assert shortest_length(world, first, world.start()) == 2**disks - 1
        assert len(world.transitions()) == 3 * (
            3**disks - 1
        )  # 3 moves, but for the 3 towers, which have 2


def walked(board: list[str], step: tuple[int, int]) -> list[str] | None:
    """Sokoban on a drawing, one sign a cell."""
    cells = {(x, y): sign for y, row in enumerate(board) for x, sign in enumerate(row)}
    x, y = next(place for place, sign in cells.items() if sign == "@")
    to, beyond = (x + step[0], y + step[1]), (x + 2 * step[0], y + 2 * step[1])
    if cells.get(to, "#") == "#" or (cells[to] == "o" and cells.get(beyond, "#") != "."):
        return None
    if cells[to] == "o":
        cells[beyond] = "o"
    cells[to], cells[x, y] = "@", "."
    width = len(board[0])
    return ["".join(cells[x, y] for x in range(width)) for y in range(len(board))]


def test_pushing_follows_a_drawing() -> None:
    world = Pushing(4, 4, 2, walls=((1, 2),))
    pushed = 0
    for configuration in world.sample(200, seed=0):
        board = world.describe(configuration).replace(" ", "").split("/")
        after, legal = world.successors(configuration)
        for number, step in enumerate([(0, -1), (0, 1), (-1, 0), (1, 0)]):
            expected = walked(board, step)
            assert bool(legal[number]) is (expected is not None)
            if expected is not None:
                found = world.describe(after[number]).replace(" ", "").split("/")
                assert found == expected
                pushed += not after[number, 1:].equal(configuration[1:])
    assert pushed > 30


def test_a_box_in_a_corner_stays_there() -> None:
    with pytest.raises(ValueError, match="planning needs worlds in which every action can be undo"):
        Pushing(3, 3, 1, walls=()).transitions()


def test_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="width: must be in 2"):
        LightsOut(9, 9)
    with pytest.raises(ValueError, match="disks: must be in 1"):
        Hanoi(0)
    with pytest.raises(ValueError, match="boxes: must be in 1"):
        Pushing(boxes=3)


@pytest.mark.parametrize(
    ("walls", "said"),
    [
        (1, "walls: expected cells such as"),
        ((1, 2), "walls: expected cells such as"),
        (((1, 2, 0),), "walls: expected cells such as"),
        (((1, 1.5),), "walls: expected cells such as"),
        (((4, 0),), r"walls: \(4, 0\) is not in a room of 4 x 3 cells"),
        (((0, -1),), r"walls: \(0, -1\) is not in a room"),
        (((0, 0), (0, 0)), "walls: expected different cells"),
        (tuple((x, y) for x in range(3) for y in range(3)), "walls: 9 leave 3 cells free"),
    ],
)
def test_walls_that_make_no_room(walls: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Pushing(4, 3, walls=walls)  # type: ignore[arg-type]


def test_rooms_that_differ_have_different_names() -> None:
    assert Pushing().name == "pushing-6x6"
    assert Pushing(4, 4).walls == ((2, 1),)
    assert Pushing(4, 4).name == "pushing-4x4"
    assert Pushing(4, 3, 1).name == "pushing-4x3x1"
    assert Pushing(4, 3, 1, walls=()).name == "pushing-4x3x1-walls-none"
    assert Pushing(4, 3, walls=((2, 1), (0, 2))).name == "pushing-4x3-walls-0x2-2x1"
