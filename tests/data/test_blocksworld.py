"""The Blocksworld against a plain search over lists of lists, and its files."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from setwise.data import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.data.blocksworld_steps import (
    Action,
    action_between,
    apply_action,
    legal_actions,
    state_from_json,
    state_to_json,
)

# The oracle's state: for each stack its blocks, bottom first, as (block, metal).
State = tuple[tuple[tuple[int, int], ...], ...]
FOUR, FIVE = Blocksworld(blocks=4, stacks=3), Blocksworld(blocks=5, stacks=3)
SMALL = [(1, 2), (2, 2), (2, 3), (3, 2), (3, 3), (2, 5), (4, 3)]
worlds = st.sampled_from([(1, 2), (2, 3), (3, 4), (4, 3), (5, 3), (8, 5), (15, 3)])


def plain_actions(state: State) -> list[State]:
    """Take the top of each stack; put it on each other one, or back with its other side out."""
    reached = []
    for source, stack in enumerate(state):
        for target in range(len(state)) if stack else ():
            board = [list(blocks) for blocks in state]
            block, metal = board[source].pop()
            board[target].append((block, 1 - metal if target == source else metal))
            reached.append(tuple(map(tuple, board)))
    return reached


def all_states(blocks: int, stacks: int) -> set[State]:
    """Every block is put on every stack that there is, at every place in it, in both materials."""
    states: set[State] = {((),) * stacks}
    for block in range(blocks):
        states = {
            (*state[:s], (*state[s][:place], (block, metal), *state[s][place:]), *state[s + 1 :])
            for state in states
            for s in range(stacks)
            for place in range(len(state[s]) + 1)
            for metal in (0, 1)
        }
    return states


def reachable(blocks: int, stacks: int) -> set[State]:
    start: State = (tuple((block, 0) for block in range(blocks)), *[()] * (stacks - 1))
    seen, waiting = {start}, deque([start])
    while waiting:
        for state in plain_actions(waiting.popleft()):
            if state not in seen:
                seen.add(state)
                waiting.append(state)
    return seen


def plain(rows: list[list[int]], stacks: int) -> State:
    board: list[list[tuple[int, int]]] = [[] for _ in range(stacks)]
    for level, stack, block, metal in sorted(
        (level, stack, block, metal) for block, (stack, level, metal) in enumerate(rows)
    ):
        assert len(board[stack]) == level
        board[stack].append((block, metal))
    return tuple(map(tuple, board))


@cache
def five_transitions() -> Tensor:
    return FIVE.transitions()


@pytest.mark.parametrize(("blocks", "stacks"), SMALL)
def test_every_state_and_action_of_small_worlds(blocks: int, stacks: int) -> None:
    """Among them the one of the paper: 4 blocks, 3 stacks, 5760 states, 34560 transitions."""
    world = Blocksworld(blocks, stacks)
    expected = all_states(blocks, stacks)
    states = [plain(rows, stacks) for rows in world.states().tolist()]
    assert len(states) == len(expected) == world.number_of_states
    assert set(states) == expected
    steps = {(one, two) for one in expected for two in plain_actions(one)}
    found = [(states[before], states[after]) for before, after in world.transitions().tolist()]
    assert len(found) == len(set(found)) == world.number_of_transitions
    assert set(found) == steps
    # With two stacks all is one row that is parted somewhere: its order never changes.
    parts = 1 if stacks > 2 else math.factorial(blocks)
    assert len(reachable(blocks, stacks)) * parts == world.number_of_states


def test_sizes_of_the_paper() -> None:
    assert (FOUR.number_of_states, FOUR.number_of_transitions) == (5760, 34560)
    assert len(FOUR.states()) == 5760
    assert len(FOUR.transitions()) == 34560
    assert FIVE.number_of_states == len(FIVE.states().unique(dim=0)) == 80640
    assert len(five_transitions()) == FIVE.number_of_transitions == 518400


def test_all_of_five_blocks_hangs_together_and_can_be_undone() -> None:
    states, transitions = FIVE.number_of_states, five_transitions()
    before, after = transitions.numpy().T
    graph = coo_matrix((np.ones(len(before), np.int8), (before, after)), shape=(states, states))
    assert connected_components(graph, directed=False)[0] == 1
    forth = transitions @ torch.tensor([states, 1])
    back = transitions.flip(1) @ torch.tensor([states, 1])
    assert len(forth.unique()) == len(forth)
    assert forth.sort().values.equal(back.sort().values)


@given(size=worlds, seed=st.integers(0, 1000), lead=st.sampled_from([(), (3,), (2, 3), (0,)]))
def test_successors_are_the_plain_actions(
    size: tuple[int, int], seed: int, lead: tuple[int, ...]
) -> None:
    world = Blocksworld(*size)
    count = math.prod(lead)
    states = torch.cat([world.sample(4, seed), world.random_walk(4, seed)])[:count]
    states = states.reshape(*lead, world.blocks, 3)
    after, legal = world.successors(states)
    assert after.shape == (*lead, world.stacks**2, world.blocks, 3)
    before = states.unsqueeze(-3).expand_as(after)
    assert world.is_legal_action(before, after).equal(legal)
    assert after[~legal].equal(before[~legal])
    flat = states.reshape(-1, world.blocks, 3)
    boards = [plain(rows, world.stacks) for rows in flat.tolist()]
    expected = [reached for board in boards for reached in plain_actions(board)]
    assert [plain(rows, world.stacks) for rows in after[legal].tolist()] == expected
    words = [
        apply_action(world, one, action) for one in flat for action in legal_actions(world, one)
    ]
    assert [plain(one.tolist(), world.stacks) for one in words] == expected


@given(size=worlds, seed=st.integers(0, 1000))
def test_ranks_come_back(size: tuple[int, int], seed: int) -> None:
    world = Blocksworld(*size)
    last = world.number_of_states - 1
    ranks = torch.tensor([[0, last // 5, last // 3], [last // 2, last - 1, last]])
    assert world.rank(world.unrank(ranks)).equal(ranks)
    drawn = world.sample(4, seed)
    assert world.unrank(world.rank(drawn)).equal(drawn)


def test_ranks_of_all_states() -> None:
    assert FIVE.rank(FIVE.states()).equal(torch.arange(80640))
    wide = Blocksworld(blocks=2, stacks=40)
    assert wide.rank(wide.states()).equal(torch.arange(wide.number_of_states))
    assert FIVE.unrank(torch.tensor(0)).tolist() == [[0, level, 0] for level in range(5)]


def test_of_all_pairs_the_transitions_are_legal() -> None:
    world = Blocksworld(blocks=3, stacks=2)
    states = world.states()
    legal = world.is_legal_action(states[:, None], states).nonzero()
    assert legal.tolist() == sorted(world.transitions().tolist())


# Block 0 under block 1 on stack 0, block 2 alone on stack 1, stack 2 empty; all rubber.
THREE = Blocksworld(blocks=3, stacks=3)
START = torch.tensor([[0, 0, 0], [0, 1, 0], [1, 0, 0]])
NOT_ONE_ACTION = {
    "nothing": [[0, 0, 0], [0, 1, 0], [1, 0, 0]],
    "two moves": [[0, 0, 0], [2, 0, 0], [0, 1, 0]],
    "move and polish": [[0, 0, 0], [2, 0, 1], [1, 0, 0]],
    "move and polish another": [[0, 0, 0], [2, 0, 0], [1, 0, 1]],
    "polish below": [[0, 0, 1], [0, 1, 0], [1, 0, 0]],
    "move from below": [[2, 0, 0], [0, 0, 0], [1, 0, 0]],
    "swap": [[0, 1, 0], [0, 0, 0], [1, 0, 0]],
    "polish two": [[0, 0, 0], [0, 1, 1], [1, 0, 1]],
}


@pytest.mark.parametrize("after", NOT_ONE_ACTION.values(), ids=NOT_ONE_ACTION.keys())
def test_what_is_no_action(after: list[list[int]]) -> None:
    wrong = torch.tensor(after)
    assert not THREE.is_legal_action(START, wrong)
    assert not THREE.is_legal_action(wrong, START)
    with pytest.raises(ValueError, match=r"^no (single )?action"):
        action_between(THREE, START, wrong)


def test_actions_in_words() -> None:
    assert legal_actions(THREE, START) == [
        Action("polish", 1),
        Action("move", 1, 1),
        Action("move", 1, 2),
        Action("move", 2, 0),
        Action("polish", 2),
        Action("move", 2, 2),
    ]
    polished = apply_action(THREE, START, Action("polish", 1))
    assert polished.tolist() == [[0, 0, 0], [0, 1, 1], [1, 0, 0]]
    assert Action("unpolish", 1) in legal_actions(THREE, polished)
    assert apply_action(THREE, polished, Action("unpolish", 1)).equal(START)
    moved = apply_action(THREE, START, Action("move", 2, 0))
    assert moved.tolist() == [[0, 0, 0], [0, 1, 0], [0, 2, 0]]


@given(size=worlds, seed=st.integers(0, 1000))
def test_the_action_between_two_states_is_found(size: tuple[int, int], seed: int) -> None:
    world = Blocksworld(*size)
    for before, after in pairwise(world.random_walk(4, seed, start=world.sample(1, seed)[0])):
        action = action_between(world, before, after)
        assert action in legal_actions(world, before)
        assert apply_action(world, before, action).equal(after)


ILLEGAL: list[tuple[Any, str]] = [
    (Action("move", 0, 2), "block 0 cannot be touched, block 1 lies on it"),
    (Action("polish", 0), "block 0 cannot be touched, block 1 lies on it"),
    (Action("move", 1, 0), "block 1 is on stack 0 already"),
    (Action("move", 1), "a move needs the stack"),
    (Action("move", 1, 3), r"^stack: must be in 0\.\.2, got 3"),
    (Action("polish", 3), r"^block: must be in 0\.\.2, got 3"),
    (Action("unpolish", 1), "block 1 is rubber already"),
    (Action("polish", 1, 2), "only a move has a stack"),
    (Action("paint", 1), "the actions are move, polish and unpolish"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("action", "message"), ILLEGAL)
def test_illegal_actions_say_why(action: Action, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply_action(THREE, START, action)


@given(size=worlds, seed=st.integers(0, 1000))
def test_states_in_words_come_back(size: tuple[int, int], seed: int) -> None:
    world = Blocksworld(*size)
    for state in world.sample(3, seed):
        words = state_to_json(world, state)
        assert len(words["stacks"]) == world.stacks
        assert state_from_json(world, words).equal(state)


def test_samples_are_distinct_and_seeded() -> None:
    for world in (FOUR, FIVE, Blocksworld(12, 3)):
        drawn = world.sample(700, seed=3)
        assert len(drawn.unique(dim=0)) == 700
        assert drawn.equal(world.sample(700, seed=3))
        assert drawn[:50].equal(world.sample(50, seed=3))
        assert not drawn.equal(world.sample(700, seed=4))
    all_of_them = FOUR.rank(FOUR.sample(5760, seed=0))
    assert all_of_them.sort().values.equal(torch.arange(5760))
    assert not all_of_them.equal(torch.arange(5760))


def test_every_state_is_equally_likely() -> None:
    """The first of each of 960 samples of 2 blocks on 3 stacks: 48 states; 5 sigma."""
    world = Blocksworld(blocks=2, stacks=3)
    ranks = torch.stack([world.rank(world.sample(1, seed)[0]) for seed in range(960)])
    seen, expected = ranks.bincount(minlength=48), 960 / 48
    assert ((seen - expected) ** 2 / expected).sum() < 47 + 5 * math.sqrt(2 * 47)


def test_draws_never_change() -> None:
    """Published results rest on these seeds: the same numbers on every platform, for good."""
    assert FIVE.rank(FIVE.sample(3, seed=0)).tolist() == [9390, 7980, 50635]
    assert FOUR.rank(FOUR.random_walk(4, seed=0)).tolist() == [0, 16, 0, 32, 40]


@pytest.mark.slow
def test_a_walk_takes_every_action_equally_often() -> None:
    """From the 12 states of one block on three stacks, times two materials. Within 5 sigma."""
    world = Blocksworld(blocks=1, stacks=3)
    walk = world.random_walk(2000, seed=1)
    assert world.is_legal_action(walk[:-1], walk[1:]).all()
    assert walk[:11].equal(world.random_walk(10, seed=1))
    assert not walk.equal(world.random_walk(2000, seed=2))
    steps = Counter(pairwise(world.rank(walk).tolist()))
    assert len(steps) == world.number_of_transitions
    for state in range(world.number_of_states):
        times = [n for (start, _), n in steps.items() if start == state]
        sigma = math.sqrt(sum(times) * 2 / 9)
        assert all(abs(n - sum(times) / 3) < 5 * sigma for n in times)


def archive(states: int = 3, blocks: int = 2) -> dict[str, Any]:
    """The fields of a small file, as the original generator writes them."""
    bits = np.random.PCG64(0)
    images = bits.random_raw(states * blocks * 32 * 32 * 3).astype(np.uint8)
    return {
        "images": images.reshape(states, blocks, 32, 32, 3),
        "bboxes": np.tile(np.array([10, 20, 42, 60], dtype=np.uint16), (states, blocks, 1)),
        "picsize": np.array([200, 300]),
        "transitions": np.array([0, 1, 1, 0, 2, 1], dtype=np.uint32),
    }


def test_archives_are_read_and_written(tmp_path: Path) -> None:
    fields = archive()
    np.savez(tmp_path / "original.npz", **fields)
    read = BlocksworldArchive.read(tmp_path / "original.npz")
    assert read.picture == (200, 300)
    assert read.transitions.tolist() == [[0, 1], [1, 0], [2, 1]]
    read.write(tmp_path / "ours.npz")
    read.write(tmp_path / "again.npz")
    assert (tmp_path / "ours.npz").read_bytes() == (tmp_path / "again.npz").read_bytes()
    with np.load(tmp_path / "ours.npz") as ours:
        for name, value in fields.items():
            assert np.array_equal(ours[name], value), name
            assert ours[name].dtype == value.dtype, name
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "again.npz",
        "original.npz",
        "ours.npz",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((3, 2, 16, 16, 3), np.uint8)}, "images: expected uint8 .*32, 32, 3"),
        ({"images": np.zeros((3, 2, 32, 32, 3))}, "images: expected uint8 .* got float64"),
        ({"bboxes": np.ones((3, 3, 4), np.uint16)}, r"bboxes: expected uint16 \[3, 2, 4\]"),
        ({"bboxes": np.full((3, 2, 4), 7, np.uint16)}, "block 0 of state 0 has .7, 7, 7, 7"),
        ({"picsize": np.array([50, 300])}, "y1 < y2 <= 50"),
        ({"transitions": np.array([0, 3], np.uint32)}, "only 3 states"),
        ({"transitions": np.array([0], np.uint32)}, "expected pairs, got 1"),
    ],
)
def test_archives_that_are_wrong(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "wrong.npz", **(archive() | change))
    with pytest.raises(ValueError, match=rf"wrong\.npz: .*{message}"):
        BlocksworldArchive.read(tmp_path / "wrong.npz")


def test_an_archive_without_a_field(tmp_path: Path) -> None:
    np.savez(tmp_path / "part.npz", images=archive()["images"])
    with pytest.raises(ValueError, match=r"part\.npz: it has no bboxes, picsize, transitions"):
        BlocksworldArchive.read(tmp_path / "part.npz")


GAP = torch.tensor([[0, 0, 0], [0, 2, 0], [1, 0, 0]])
BAD_CALLS: list[tuple[Callable[[], object], type[Exception], str]] = [
    (lambda: Blocksworld(0, 3), ValueError, "^blocks: must be at least 1, got 0"),
    (lambda: Blocksworld(3, 1), ValueError, "^stacks: must be at least 2, got 1"),
    (lambda: Blocksworld(3.0), TypeError, "^blocks: expected an int, got float"),  # type: ignore[arg-type]
    (lambda: Blocksworld(30), ValueError, "do not fit in 64 bits"),
    (lambda: Blocksworld(8).states(), ValueError, "too large to list all .* use sample"),
    (lambda: THREE.rank(GAP), ValueError, r"^states: .* without gaps.* states has \[\[0, 0, 0\]"),
    (lambda: THREE.rank(torch.stack([START, GAP])), ValueError, r"states\[1\] has"),
    (lambda: THREE.rank(START + 1), ValueError, "^states: expected for each block"),
    (lambda: THREE.rank(START * 0), ValueError, "^states: expected for each block"),
    (lambda: THREE.rank(START - 1), ValueError, "^states: expected for each block"),
    (lambda: THREE.check(START * 2), ValueError, "stack below 3"),
    (lambda: THREE.rank(START.float()), TypeError, "integers, got torch.float32"),
    (lambda: FOUR.rank(START), ValueError, r"\[\*, 4, 3\], got \(3, 3\)"),
    (lambda: THREE.unrank(torch.tensor(480)), ValueError, r"^ranks: .* 0\.\.479 .* got 480"),
    (lambda: THREE.unrank(torch.tensor(-1)), ValueError, r"^ranks: .* got -1"),
    (lambda: THREE.is_legal_action(START, GAP), ValueError, "^after: expected for each"),
    (
        lambda: THREE.is_legal_action(THREE.sample(2, 0), THREE.sample(3, 0)),
        ValueError,
        r"broadcast, got before \(2, 3, 3\) and after \(3, 3, 3\)",
    ),
    (lambda: THREE.sample(481, 0), ValueError, r"^count: must be in 0\.\.480, got 481"),
    (lambda: THREE.sample(3, -1), ValueError, "^seed: must be at least 0"),
    (lambda: THREE.random_walk(-1, 0), ValueError, "^steps: must be at least 0"),
    (lambda: THREE.random_walk(1, 0, START[None]), ValueError, r"^start: .* \[3, 3\]"),
    (lambda: THREE.random_walk(1, 0, GAP), ValueError, "^start: expected for each"),
    (lambda: legal_actions(THREE, START[None]), ValueError, r"^state: .* got \(1, 3, 3\)"),
    (lambda: state_from_json(THREE, {}), ValueError, "^stacks: expected 3 lists"),
    (
        lambda: state_from_json(THREE, {"stacks": [[0], [1], [1]], "materials": ["metal"] * 3}),
        ValueError,
        "^stacks: .* 0 to 2 once",
    ),
    (
        lambda: state_from_json(THREE, {"stacks": [[0], [1], [2]], "materials": ["wood"] * 3}),
        ValueError,
        "^materials: expected 3 times rubber or metal",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD_CALLS)
def test_bad_calls_are_refused_by_name(
    call: Callable[[], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
