"""The judge of plans, the exact search and the nearest legal state, against plain searches."""

from __future__ import annotations

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from torch import Tensor

import setwise as sw
from oracle import SMALL, distances
from setwise.planning import FaultKind, Report, shortest_length, validate
from setwise.worlds import PuzzleWorld

EIGHT = PuzzleWorld()
TINY = PuzzleWorld(2, 2)


def walk(puzzle: PuzzleWorld, *blank: int) -> Tensor:
    """The configurations [P, C] as the blank goes from the goal over the cells given."""
    states = [puzzle.goal()]
    for cell in blank:
        state = states[-1].clone()
        at = int(state.argmin())
        state[[at, cell]] = state[[cell, at]]
        states.append(state)
    return torch.stack(states)


# Back to front: from the end of a walk of 6 to the goal, which is also a shortest way.
PLAN = walk(EIGHT, 1, 4, 5, 2, 1, 0).flip(0)


def judge(states: Tensor, puzzle: PuzzleWorld = EIGHT) -> Report:
    """As if configurations had been decoded, in any order of objects."""
    objects = sw.shuffle_sets(puzzle.objects(states))
    return validate(puzzle, objects, puzzle.objects(PLAN[0]), puzzle.objects(PLAN[-1]))


def places(report: Report) -> list[tuple[str, int]]:
    return [(str(fault.kind), fault.at) for fault in report.faults]


def test_a_right_plan() -> None:
    report = judge(PLAN)
    assert report.valid
    assert report.optimal
    assert (report.length, report.optimum) == (6, 6)
    assert report.states == PLAN.tolist()
    assert str(report) == "optimal plan of 6 steps (a shortest has 6)"
    assert json.loads(json.dumps(report.as_dict()))["valid"] is True


def test_a_detour_is_valid_and_not_optimal() -> None:
    detour = torch.cat([PLAN[:3], PLAN[1:]])
    report = judge(detour)
    assert report.valid
    assert not report.optimal
    assert str(report) == "valid plan of 8 steps (a shortest has 6)"


def test_swapped_steps() -> None:
    swapped = PLAN[[0, 1, 3, 2, 4, 5, 6]]
    report = judge(swapped)
    assert not report.valid
    assert places(report) == [("illegal step", 2), ("illegal step", 4)]
    assert "step 2: illegal step: the blank from" in str(report)
    data = json.loads(json.dumps(report.as_dict()))
    assert [fault["at"] for fault in data["faults"]] == [2, 4]
    assert data["faults"][0]["kind"] == "illegal step"


def test_a_teleported_tile() -> None:
    state = PLAN[3].clone()
    five, six = (state == 5).nonzero(), (state == 6).nonzero()
    state[five], state[six] = 6, 5
    report = judge(torch.cat([PLAN[:3], state[None], PLAN[4:]]))
    assert places(report) == [("illegal step", 3), ("illegal step", 4)]
    assert "tile 5 from" in report.faults[0].reason
    assert "tile 6 from" in report.faults[0].reason


def test_a_state_that_stays() -> None:
    report = judge(PLAN[[0, 1, 2, 2, 3, 4, 5, 6]])
    assert places(report) == [("illegal step", 3)]
    assert "nothing moved" in report.faults[0].reason


def test_wrong_ends() -> None:
    assert places(judge(PLAN[:-1])) == [("wrong goal", 5)]
    assert places(judge(PLAN[1:])) == [("wrong init", 0)]
    only = judge(PLAN[2:3])
    assert places(only) == [("wrong init", 0), ("wrong goal", 0)]
    assert f"expected {PLAN[0].tolist()}, got {PLAN[2].tolist()}" in only.faults[0].reason


def test_a_state_that_is_none() -> None:
    objects = EIGHT.objects(PLAN)
    objects[4, 2, :9] = objects[4, 7, :9]  # tile 7 twice and no tile 2
    report = validate(EIGHT, objects, objects[0], objects[-1])
    assert places(report) == [("illegal state", 4)]
    fault = report.faults[0]
    assert fault.kind is FaultKind.ILLEGAL_STATE
    other = PLAN[4].clone()  # it may as well be the other of the two that is no tile 7
    other[(other == 2) | (other == 7)] = other[(other == 2) | (other == 7)].flip(0)
    assert fault.nearest in (PLAN[4].tolist(), other.tolist())
    assert fault.distance == 1
    assert "each tile from 0 to 8 once" in fault.reason
    assert "the nearest legal state is" in str(report)
    assert report.states[4] is None
    objects[6] = objects[4]  # the last state too: the goal is not judged besides
    assert places(validate(EIGHT, objects, objects[0], EIGHT.objects(PLAN[-1]))) == [
        ("illegal state", 4),
        ("illegal state", 6),
    ]


def test_no_plan_exists() -> None:
    """Then no sequence of states is a plan."""
    other = torch.tensor([0, 2, 1, 3, 4, 5, 6, 7, 8])
    ends = EIGHT.objects(torch.stack([EIGHT.goal(), other]))
    report = validate(EIGHT, ends, ends[0], ends[1])
    assert report.optimum is None
    assert places(report) == [("illegal step", 1)]
    assert "there is none" in str(report)


def test_bad_questions_are_refused() -> None:
    objects = EIGHT.objects(PLAN)
    spoiled = objects[0].clone()
    spoiled[0] = spoiled[1]
    with pytest.raises(ValueError, match=r"^init: no legal state of puzzle-3x3: .*each tile"):
        validate(EIGHT, objects, spoiled, objects[-1])
    with pytest.raises(ValueError, match=r"^goal: no legal state of puzzle-3x3: .*shape"):
        validate(EIGHT, objects, objects[0], objects[-1, :5])
    with pytest.raises(ValueError, match=r"^states: .* got \(0, 9, 15\)"):
        validate(EIGHT, objects[:0], objects[0], objects[-1])
    with pytest.raises(ValueError, match=r"^states: .* got \(9, 15\)"):
        validate(EIGHT, objects[0], objects[0], objects[-1])


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])  # of 720 states
def test_shortest_lengths_of_a_small_puzzle(every: int) -> None:
    expected = distances(SMALL).tolist()
    for rank, state in list(enumerate(SMALL.states()))[::every]:
        length = shortest_length(SMALL, state, SMALL.goal())
        assert (math.inf if length is None else length) == expected[rank]


def test_shortest_lengths_go_both_ways() -> None:
    for state in EIGHT.sample(12, seed=0):
        forth = shortest_length(EIGHT, EIGHT.goal(), state)
        assert forth == shortest_length(EIGHT, state, EIGHT.goal())
        assert (forth is None) == (not EIGHT.solvable(EIGHT.goal(), state))


def plain_distance(objects: Tensor, state: Tensor) -> float:
    """The fewest of tile, x and y to change, over all ways to pair objects and those wanted."""
    costs = (objects[:, None] != TINY.objects(state)[None]).sum(-1) / 2
    return float(costs[linear_sum_assignment(costs)].sum())


cell = st.tuples(st.integers(0, 3), st.integers(0, 1), st.integers(0, 1))


@given(objects=st.lists(cell, min_size=4, max_size=4))
def test_the_nearest_state_is_the_nearest_of_all(objects: list[tuple[int, int, int]]) -> None:
    rows = [torch.cat([torch.eye(4)[t], torch.eye(2)[x], torch.eye(2)[y]]) for t, x, y in objects]
    found, distance = TINY.nearest(torch.stack(rows))
    distances = [plain_distance(torch.stack(rows), state) for state in TINY.states()]
    assert distance == min(distances)
    assert distance == plain_distance(torch.stack(rows), found)
    assert (distance == 0) == (min(distances) == 0)


def test_objects_as_counts_and_outputs() -> None:
    for puzzle in (TINY, SMALL, EIGHT):
        states = puzzle.sample(20, seed=1)
        objects = puzzle.objects(states)
        counts = puzzle.counts(states)
        assert torch.equal(counts @ puzzle.elements(), objects.sum(1))
        assert (counts.sum(-1) == puzzle.cells).all()
        assert len(puzzle.elements().unique(dim=0)) == puzzle.cells**2
        outputs = sw.shuffle_sets(8 * objects - 5)
        assert puzzle.configuration_of(puzzle.read(outputs)).equal(states)
        assert puzzle.recovers(outputs, states).all()
        assert not puzzle.recovers(outputs, states.roll(1, 0)).any()
        outputs[3, 1] = outputs[3, 0]  # an object twice, another missing
        assert puzzle.recovers(outputs, states).nonzero()[:, 0].tolist() == [
            row for row in range(20) if row != 3
        ]
