"""The sliding-tile puzzle against a plain breadth-first search, and its states as sets."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

import setwise as sw
from setwise.data import SlidingPuzzle, drop_elements

State = tuple[int, ...]
SMALL = [(2, 2), (2, 3), (3, 2)]
EIGHT = SlidingPuzzle()
boards = st.sampled_from([(2, 2), (2, 3), (3, 2), (3, 3), (4, 2), (4, 4), (4, 5), (5, 5)])


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def plain_moves(state: State, width: int, height: int) -> list[State]:
    """The oracle: a board as rows and columns, the blank swapped with each of its neighbours."""
    blank = state.index(0)
    row, column = divmod(blank, width)
    reached = []
    for r, c in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
        if 0 <= r < height and 0 <= c < width:
            board = list(state)
            board[blank], board[r * width + c] = board[r * width + c], 0
            reached.append(tuple(board))
    return reached


def reachable(start: State, width: int, height: int) -> set[State]:
    seen, waiting = {start}, deque([start])
    while waiting:
        for state in plain_moves(waiting.popleft(), width, height):
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    return seen


@cache
def eight_transitions() -> Tensor:
    return EIGHT.transitions()


@pytest.mark.parametrize(("width", "height"), SMALL)
def test_every_state_and_move_of_small_boards(width: int, height: int) -> None:
    puzzle = SlidingPuzzle(width, height)
    states = list(permutations(range(width * height)))  # in lexicographic order
    assert puzzle.states().tolist() == [list(state) for state in states]
    expected = {(one, two) for one in states for two in plain_moves(one, width, height)}
    found = [(states[before], states[after]) for before, after in puzzle.transitions().tolist()]
    assert len(found) == len(set(found)) == puzzle.number_of_transitions
    assert set(found) == expected


@pytest.mark.parametrize(("width", "height"), SMALL)
def test_solvable_is_reachable(width: int, height: int) -> None:
    """Two halves, between which nothing leads: 360 and 360 states on a board of 3 x 2."""
    puzzle = SlidingPuzzle(width, height)
    configurations = puzzle.states()
    half = reachable(tuple(puzzle.goal().tolist()), width, height)
    assert len(half) == puzzle.number_of_states // 2
    other = next(state for state in map(tuple, configurations.tolist()) if state not in half)
    rest = reachable(other, width, height)
    assert len(rest) == puzzle.number_of_states // 2
    assert not half & rest
    for start, component in ((puzzle.goal(), half), (torch.tensor(other), rest)):
        solvable = puzzle.solvable(start, configurations)
        assert {tuple(c) for c in configurations[solvable].tolist()} == component


def test_the_eight_puzzle_has_the_size_of_the_paper() -> None:
    configurations, transitions = EIGHT.states(), eight_transitions()
    assert EIGHT.number_of_states == len(configurations) == 362880
    assert EIGHT.number_of_transitions == len(transitions) == 967680
    assert len((transitions @ torch.tensor([362880, 1])).unique()) == 967680
    assert EIGHT.rank(configurations).equal(torch.arange(362880))
    one, two = configurations[transitions].unbind(1)
    assert ((one != two).sum(-1) == 2).all()


def test_the_moves_of_the_eight_puzzle_can_be_undone() -> None:
    forth = eight_transitions() @ torch.tensor([362880, 1])
    back = eight_transitions().flip(1) @ torch.tensor([362880, 1])
    assert forth.sort().values.equal(back.sort().values)


def test_the_eight_puzzle_falls_into_two_halves() -> None:
    before, after = eight_transitions().numpy().T
    graph = coo_matrix((np.ones(len(before), np.int8), (before, after)), shape=(362880, 362880))
    count, component = connected_components(graph, directed=False)
    assert count == 2
    solvable = EIGHT.solvable(EIGHT.states(), EIGHT.goal())
    assert solvable.sum() == 181440
    assert solvable.equal(torch.from_numpy(component == component[0]))


def test_moves_are_listed_up_down_left_right() -> None:
    after, legal = EIGHT.successors(torch.tensor([1, 2, 3, 4, 0, 5, 6, 7, 8]))
    assert legal.tolist() == [True] * 4
    assert after.argmin(-1).tolist() == [1, 7, 3, 5]
    corner = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8])
    after, legal = EIGHT.successors(corner)
    assert legal.tolist() == [False, True, False, True]
    assert after[~legal].equal(corner.expand(2, 9))


@given(board=boards, seed=st.integers(0, 1000), lead=st.sampled_from([(), (3,), (2, 3), (0,)]))
def test_successors_are_the_plain_moves(
    board: tuple[int, int], seed: int, lead: tuple[int, ...]
) -> None:
    puzzle = SlidingPuzzle(*board)
    configurations = puzzle.sample(6, seed)[: math.prod(lead)].reshape(*lead, puzzle.cells)
    after, legal = puzzle.successors(configurations)
    assert after.shape == (*lead, 4, puzzle.cells)
    before = configurations.unsqueeze(-2).expand_as(after)
    assert puzzle.is_legal_move(before, after).equal(legal)
    states = [tuple(state) for state in configurations.reshape(-1, puzzle.cells).tolist()]
    expected = [reached for state in states for reached in plain_moves(state, *board)]
    assert [tuple(state) for state in after[legal].tolist()] == expected


@pytest.mark.parametrize(("width", "height"), [*SMALL, (3, 3), (4, 4), (4, 5)])
def test_ranks_come_back(width: int, height: int) -> None:
    puzzle = SlidingPuzzle(width, height)
    last = puzzle.number_of_states - 1
    ranks = torch.tensor([[0, 1, 2], [last // 3, last // 2, last]])
    configurations = puzzle.unrank(ranks)
    assert configurations.shape == (2, 3, puzzle.cells)
    assert configurations[0, 0].equal(puzzle.goal())
    assert configurations[1, 2].equal(puzzle.goal().flip(0))
    assert puzzle.rank(configurations).equal(ranks)
    drawn = puzzle.sample(20, seed=1)
    assert puzzle.unrank(puzzle.rank(drawn)).equal(drawn)
    by_rank = drawn[puzzle.rank(drawn).argsort()].tolist()
    assert by_rank == sorted(drawn.tolist())


def test_what_is_no_move() -> None:
    goal = EIGHT.goal()
    staying = goal
    teleport = torch.tensor([8, 1, 2, 3, 4, 5, 6, 7, 0])
    two_moves = torch.tensor([1, 2, 0, 3, 4, 5, 6, 7, 8])
    swap_of_tiles = torch.tensor([0, 1, 2, 3, 5, 4, 6, 7, 8])
    move_and_swap = torch.tensor([1, 0, 3, 2, 4, 5, 6, 7, 8])
    wrong = torch.stack([staying, teleport, two_moves, swap_of_tiles, move_and_swap])
    assert not EIGHT.is_legal_move(goal, wrong).any()
    assert not EIGHT.is_legal_move(wrong, goal).any()
    from_row_to_row = torch.tensor([1, 2, 3, 0, 4, 5, 6, 7, 8])  # cells 2 and 3 are no neighbours
    assert not EIGHT.is_legal_move(two_moves, from_row_to_row)


def test_of_all_pairs_the_transitions_are_legal() -> None:
    puzzle = SlidingPuzzle(2, 3)
    states = puzzle.states()
    legal = puzzle.is_legal_move(states[:, None], states).nonzero()
    assert legal.tolist() == sorted(puzzle.transitions().tolist())


def test_objects_are_tiles_with_their_coordinates() -> None:
    """Row t: one-hot t, x, y; on a board that is not square, so that x and y cannot be mixed up."""
    puzzle = SlidingPuzzle(3, 2)
    board = [[4, 0, 5], [1, 3, 2]]
    objects = puzzle.objects(torch.tensor(board[0] + board[1]))
    assert objects.dtype == torch.float32
    assert objects.shape == (6, 6 + 3 + 2)
    assert puzzle.features.width == 11
    for tile, row in enumerate(objects.tolist()):
        assert row.count(1.0) == 3
        assert row.count(0.0) == 8
        x, y = row[6:9].index(1.0), row[9:].index(1.0)
        assert row[tile] == 1.0
        assert board[y][x] == tile


@given(board=boards, seed=st.integers(0, 1000), lead=st.sampled_from([(), (3,), (2, 3), (0,)]))
def test_objects_come_back_in_any_order(
    board: tuple[int, int], seed: int, lead: tuple[int, ...]
) -> None:
    puzzle = SlidingPuzzle(*board)
    configurations = puzzle.sample(6, seed)[: math.prod(lead)].reshape(*lead, puzzle.cells)
    objects = puzzle.objects(configurations)
    assert puzzle.features.discretise(objects).equal(objects)
    shuffled = sw.shuffle_sets(objects, seeded(seed))
    assert puzzle.configuration_of(shuffled).equal(configurations)
    assert puzzle.configuration_of(shuffled.bool()).equal(configurations)


def test_different_states_are_different_sets() -> None:
    sets = SlidingPuzzle(2, 2).objects(SlidingPuzzle(2, 2).states())
    assert len({frozenset(map(tuple, one)) for one in sets.tolist()}) == 24


def spoiled(change: Callable[[Tensor], None]) -> Tensor:
    """Objects of two states, of which the second is spoiled."""
    objects = EIGHT.objects(EIGHT.goal().expand(2, 9))
    change(objects[1])
    return objects


def same_tile(rows: Tensor) -> None:
    rows[4, :9] = rows[3, :9]


def same_cell(rows: Tensor) -> None:
    rows[4, 9:] = rows[3, 9:]


def two_tiles(rows: Tensor) -> None:
    rows[2, 5] = 1.0


def no_x(rows: Tensor) -> None:
    rows[2, 9:12] = 0.0


def soft_y(rows: Tensor) -> None:
    rows[2, 12:] = torch.tensor([0.5, 0.5, 0.0])


def not_quite(rows: Tensor) -> None:
    rows[2, 0] = 0.25


def not_a_number(rows: Tensor) -> None:
    rows[2, 0] = math.nan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (same_tile, r"each tile from 0 to 8 once, objects\[1\] has \[0, 1, 2, 3, 3, 5"),
        (same_cell, r"each cell .* once, objects\[1\] has \[0, 1, 2, 3, 3, 5"),
        (two_tiles, r"the tile of objects\[1, 2\] is not one-hot"),
        (no_x, r"the x of objects\[1, 2\] is not one-hot: \[0.0, 0.0, 0.0\]"),
        (soft_y, r"the y of objects\[1, 2\] is not one-hot: \[0.5, 0.5, 0.0\].*discretise"),
        (not_quite, r"the tile of objects\[1, 2\] is not one-hot: \[0.25, 0.0, 1.0"),
        (not_a_number, r"the tile of objects\[1, 2\] is not one-hot: \[nan"),
    ],
)
def test_objects_that_are_no_configuration(change: Callable[[Tensor], None], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^objects: .*{message}"):
        EIGHT.configuration_of(spoiled(change))


TWICE = torch.tensor([[0, 1, 2, 3], [0, 1, 1, 3]])
TINY = SlidingPuzzle(2, 2)
BAD_CALLS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: SlidingPuzzle(1, 3), ValueError, "^width: must be at least 2, got 1"),
    (lambda: SlidingPuzzle(3, 0), ValueError, "^height: must be at least 2, got 0"),
    (lambda: SlidingPuzzle(3.0), TypeError, "^width: expected an int, got float"),  # type: ignore[arg-type]
    (lambda: SlidingPuzzle(3, True), TypeError, "^height: expected an int, got bool"),
    (lambda: TINY.rank(TWICE), ValueError, r"each tile .* configurations\[1\] has \[0, 1, 1, 3\]"),
    (lambda: TINY.rank(-TWICE[0]), ValueError, r"each tile .* has \[0, -1, -2, -3\]"),
    (lambda: TINY.rank(TWICE[0] + 1), ValueError, r"each tile .* has \[1, 2, 3, 4\]"),
    (lambda: TINY.rank(TWICE[:, :3]), ValueError, r"expected shape \[\*, 4\], got \(2, 3\)"),
    (lambda: TINY.rank(torch.tensor(0)), ValueError, r"expected shape \[\*, 4\], got \(\)"),
    (lambda: TINY.objects(TWICE.float()), TypeError, "integers, got torch.float32"),
    (lambda: TINY.successors([0, 1, 2, 3]), TypeError, "integers, got list"),  # type: ignore[arg-type]
    (lambda: TINY.unrank(torch.tensor([3, 24])), ValueError, r"^ranks: .* 0\.\.23 .* got 24"),
    (lambda: TINY.unrank(torch.tensor(-1)), ValueError, r"^ranks: .* 0\.\.23 .* got -1"),
    (lambda: TINY.unrank(torch.tensor(1.0)), TypeError, "^ranks: .* got torch.float32"),
    (lambda: TINY.is_legal_move(TINY.goal(), TWICE), ValueError, "^after: expected each tile"),
    (lambda: TINY.solvable(TWICE, TINY.goal()), ValueError, "^start: expected each tile"),
    (
        lambda: TINY.solvable(TINY.sample(2, 0), TINY.sample(3, 0)),
        ValueError,
        r"broadcast, got start \(2, 4\) and end \(3, 4\)",
    ),
    (lambda: SlidingPuzzle(4, 3).states(), ValueError, "all 479001600 .* use sample"),
    (lambda: SlidingPuzzle(4, 4).transitions(), ValueError, "too large to list .* use sample"),
    (lambda: SlidingPuzzle(7, 3).rank(torch.arange(21)), ValueError, "21! do not fit in 64 bits"),
    (lambda: TINY.configuration_of(torch.ones(4, 7)), ValueError, r"\[\*, 4, 8\], got \(4, 7\)"),
    (lambda: TINY.configuration_of(torch.ones(8)), ValueError, r"\[\*, 4, 8\], got \(8,\)"),
    (lambda: TINY.configuration_of(None), TypeError, "^objects: .* got NoneType"),  # type: ignore[arg-type]
    (lambda: TINY.sample(25, 0), ValueError, r"^count: must be in 0\.\.24, got 25"),
    (lambda: TINY.sample(-1, 0), ValueError, r"^count: must be in 0\.\.24, got -1"),
    (lambda: TINY.sample(3, -1), ValueError, "^seed: must be at least 0, got -1"),
    (lambda: TINY.sample(3, None), TypeError, "^seed: expected an int, got NoneType"),  # type: ignore[arg-type]
    (lambda: TINY.random_walk(-1, 0), ValueError, "^steps: must be at least 0, got -1"),
    (lambda: TINY.random_walk(1, 0, TWICE[:1]), ValueError, r"^start: .* \[4\], got \(1, 4\)"),
    (lambda: TINY.random_walk(1, 0, TWICE[1]), ValueError, "^start: expected each tile"),
    (lambda: drop_elements(torch.ones(9, 15), 0), ValueError, r"^objects: .* got \(9, 15\)"),
    (lambda: drop_elements([torch.ones(9, 15)], 0), TypeError, "^objects: .* got list"),  # type: ignore[arg-type]
    (lambda: drop_elements(torch.ones(2, 4, 3), 0), ValueError, r"^most: .* 0\.\.4, got 5"),
    (lambda: drop_elements(torch.ones(2, 9, 3), -3), ValueError, "^seed: .* got -3"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_calls_are_refused_by_name(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
