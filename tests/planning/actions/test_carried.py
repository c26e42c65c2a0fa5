"""Models carried over to values that were never seen."""

from __future__ import annotations

import pytest

from learned_models import judged, puzzle_disagreements
from setwise.planning import ActionModel
from setwise.planning.actions import from_elements, record_walks, together
from setwise.worlds import Hanoi, PuzzleWorld


# 40,320 states are looked through; the two tests below break when it does.
@pytest.mark.slow
def test_a_wider_board_is_exactly_the_puzzle() -> None:
    """Learned on 3 x 2, held against all 40,320 states of 4 x 2."""
    model = ActionModel.learn(record_walks(PuzzleWorld(3, 2), 400, seed=0, steps=1))
    same = model.carried({"tile": range(6)})  # nothing new changes nothing
    assert puzzle_disagreements(same, PuzzleWorld(3, 2)) == 0
    world = PuzzleWorld(4, 2)
    wider = model.carried({"tile": range(8), "x": range(4)})
    assert puzzle_disagreements(wider, world) == 0
    start = world.random_walk(25, seed=1)[-1]
    plan = wider.plan(world.objects(start), world.objects(world.goal()), searcher="ff")
    assert judged(world, plan, start, world.goal())


def test_what_depends_on_the_value_is_not_guessed() -> None:
    """Which disks lie on which is not known of a new one, and nothing wrong is done with it."""
    world = Hanoi(4)
    model = ActionModel.learn(record_walks(Hanoi(3), 600, seed=0, steps=30))
    carried = model.carried({"disk": range(4)})
    reached = 0
    for configuration in world.states():
        state = carried.symbols.state(world.objects(configuration))
        for found in carried.successors(state):
            after = world.configuration_of(carried.symbols.tensor(found))
            assert bool(world.is_legal_move(configuration, after))
            reached += 1
    assert 0 < reached < len(world.transitions())


def test_what_cannot_be_carried_is_said() -> None:
    model = ActionModel.learn(record_walks(Hanoi(3), 600, seed=0, steps=30))
    with pytest.raises(ValueError, match="values: unknown feature 'peag'; known: disk, peg"):
        model.carried({"peag": range(4)})
    with pytest.raises(ValueError, match="peg: expected all known values among the new ones"):
        model.carried({"peg": range(2)})
    boards = [PuzzleWorld(3, 2), PuzzleWorld(2, 3)]  # of which none has a cell x = 2, y = 2
    both = together([record_walks(board, 300, seed=0, steps=1) for board in boards])
    with pytest.raises(ValueError, match="change-x: how its x and its y belong together"):
        ActionModel.learn(both).carried({"x": range(4)})


def test_relations_by_name_cannot_be_carried() -> None:
    """Towns on no line: which roads there are says nothing of another town."""
    roads = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]
    before = [[("car", one)] for one, _ in roads]
    after = [[("car", other)] for _, other in roads]
    model = ActionModel.learn(from_elements(before, after, ["what", "town"]))
    assert len(model.actions) == 4
    with pytest.raises(ValueError, match="its town and its town belong together is known of 4 pai"):
        model.carried({"town": ["a", "b", "c", "d"]})
