"""Worlds learned from walks alone: what is learned, and plans that the worlds themselves judge."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from learned_models import judged
from setwise.planning import ActionModel, random_problems
from setwise.planning.actions import record_walks
from setwise.worlds import Hanoi, LightsOut, Pushing, World


def disagreements(model: ActionModel, world: World) -> tuple[int, int]:
    """How many states the model leads from where the world does not, and where only the world."""
    wrong, missing = 0, 0
    for configuration in world.states():
        after, legal = world.successors(configuration)
        true = {model.symbols.state(one) for one in world.objects(after[legal])}
        found = set(model.successors(model.symbols.state(world.objects(configuration))))
        wrong, missing = wrong + bool(found - true), missing + bool(true - found)
    return wrong, missing


@pytest.mark.parametrize("pegs", [3, 4])
def test_hanoi_is_learned_exactly(pegs: int) -> None:
    """With four pegs there are moves whose only condition is that smaller disks are elsewhere."""
    world = Hanoi(3, pegs)
    model = ActionModel.learn(record_walks(world, 600, seed=0, steps=30))
    assert disagreements(model, world) == (0, 0)
    text = model.domain.text()
    assert text.count("(:action") == 3  # disks differ, pegs do not
    assert text.count("(not (is disk-0 ?peg") == 5  # two of each larger disk, and one effect


def test_lights_are_learned_exactly() -> None:
    world = LightsOut(3, 2)
    model = ActionModel.learn(record_walks(world, 600, seed=0))
    assert disagreements(model, world) == (0, 0)


@pytest.mark.parametrize("transitions", [30, 300])
def test_pushing_is_never_learned_wrong(transitions: int) -> None:
    """Where a box stands in the way is known by what was never there."""
    world = Pushing(4, 3, 1, walls=((1, 1),))
    model = ActionModel.learn(record_walks(world, transitions, seed=0))
    wrong, missing = disagreements(model, world)
    assert wrong == 0
    assert missing < (len(world.states()) if transitions == 30 else 40)
    careless = ActionModel.learn(record_walks(world, transitions, seed=0), absent=False)
    assert disagreements(careless, world)[0] > 0


def test_walls_are_fixed() -> None:
    world = Pushing(4, 3, 1, walls=((1, 1),))
    model = ActionModel.learn(record_walks(world, 300, seed=0))
    assert [model.symbols.element(code) for code in model.fixed] == [(2, 1, 1)]
    objects = world.objects(torch.tensor([0, 6]))
    plan = model.plan(objects[:-1], objects)
    assert plan.reason == "init: lacks (2, 1, 1), which every state seen has"
    another = Pushing(4, 3, 1, walls=((1, 1), (2, 2))).objects(torch.tensor([0, 6]))
    plan = model.plan(another, objects)
    assert plan.reason == "init: (2, 2, 2) was in no state seen, and no action brings it about"


def test_walks_go_step_by_step() -> None:
    world = Hanoi(3)
    recording = record_walks(world, 45, seed=1, steps=20)
    assert len(recording) == 45
    for number, (one, other) in enumerate(pairwise(range(45))):
        if number % 20 != 19:
            assert recording.after[one] == recording.before[other]
    again = record_walks(world, 45, seed=1, steps=20)
    assert (recording.before, recording.after) == (again.before, again.after)


# Larger worlds; their small versions above break when these do.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "transitions", "steps"),
    [(Hanoi(4), 500, 20), (LightsOut(3, 3), 1200, 6), (Pushing(5, 5), 5000, 12)],
)
def test_plans_in_larger_worlds(world: World, transitions: int, steps: int) -> None:
    model = ActionModel.learn(record_walks(world, transitions, seed=0, steps=50))
    problems = random_problems(world, steps, count=5, seed=1, start_is="init")
    solved = 0
    for problem in problems:
        plan = model.plan(problem.init, problem.goal, searcher="ff", seconds=60)
        ends = [world.configuration_of(end) for end in (problem.init, problem.goal)]
        assert not plan.solved or judged(world, plan, *ends)
        solved += plan.solved
    assert solved >= 4
