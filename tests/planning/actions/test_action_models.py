"""Learned action models against the worlds that they were learned from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import setwise as sw
from learned_models import judged, puzzle_disagreements, puzzle_model, random_steps
from setwise.planning import ActionModel, Outcome, Recording, validate
from setwise.planning.actions import UnknownSymbolError, from_elements, replay
from setwise.worlds import PuzzleWorld

SMALL = PuzzleWorld(3, 2)


@pytest.fixture(scope="module")
def small() -> ActionModel:
    return puzzle_model(3, 2, 200, seed=0, lift=True)


def test_the_small_puzzle_is_learned_exactly(small: ActionModel) -> None:
    assert [schema.name for schema in small.schemas] == ["change-x", "change-y"]
    assert len(small.actions) == 5 * 2 * 7
    assert puzzle_disagreements(small, SMALL) == 0


def test_without_lifting_every_difference_is_an_action() -> None:
    model = puzzle_model(3, 2, 720, seed=0, lift=False, absent=False)
    assert len(model.schemas) == len(model.actions) == 70
    assert puzzle_disagreements(model, SMALL) == 0
    careful = puzzle_model(3, 2, 720, seed=0, lift=False)
    assert 0 < puzzle_disagreements(careful, SMALL) < 720  # most that never was there has been
    assert all(not schema.places for schema in model.schemas)


@pytest.mark.parametrize("count", [1, 5, 20, 60])
@pytest.mark.parametrize("lift", [True, False])
def test_too_little_is_learned_from_few_transitions_but_nothing_wrong(
    count: int, lift: bool
) -> None:
    """Safe: wherever the model leads, the puzzle does, too."""
    model = puzzle_model(3, 2, count, seed=1, lift=lift)
    reached = 0
    recorded = SMALL.sample(count, seed=1)  # as the model's before-states were: these can be left
    for configuration in torch.cat([recorded, SMALL.sample(100, seed=5)]):
        try:
            state = model.symbols.state(SMALL.objects(configuration))
        except UnknownSymbolError:
            continue
        for found in model.successors(state):
            after = SMALL.configuration_of(model.symbols.tensor(found))
            assert bool(SMALL.is_legal_move(configuration, after))
            reached += 1
    assert reached >= count


def test_every_state_that_was_seen_before_a_step_allows_it(small: ActionModel) -> None:
    before, after = random_steps(SMALL, 200, seed=0)
    for one, other in zip(before, after, strict=True):
        assert small.symbols.state(other) in small.successors(small.symbols.state(one))


def test_plans_are_optimal_and_valid(small: ActionModel) -> None:
    start, goal = torch.tensor([4, 5, 0, 1, 2, 3]), SMALL.goal()
    init, end = SMALL.objects(start), SMALL.objects(goal)
    plan = small.plan(init, end.flip(0))
    assert plan.outcome is Outcome.SOLVED
    report = validate(SMALL, torch.stack(plan.states), init, end)
    assert report.valid
    assert report.length == report.optimum == 10


@pytest.mark.parametrize("searcher", ["ff", "lama", "blind"])
def test_other_searches(small: ActionModel, searcher: str) -> None:
    start = SMALL.random_walk(9, seed=3)[-1]
    plan = small.plan(SMALL.objects(start), SMALL.objects(SMALL.goal()), searcher=searcher)
    assert judged(SMALL, plan, start, SMALL.goal())


def test_the_other_half_of_the_puzzle_is_out_of_reach(small: ActionModel) -> None:
    goal = SMALL.objects(SMALL.goal())
    plan = small.plan(SMALL.objects(torch.tensor([0, 1, 2, 3, 5, 4])), goal)
    assert (plan.outcome, plan.codes) == (Outcome.UNSOLVABLE, ())
    fewer = small.plan(SMALL.objects(SMALL.goal()), goal[1:])
    assert fewer.outcome is Outcome.UNSOLVABLE
    assert fewer.reason == (
        "init has 6 elements and the goal 5, and no action changes how many there are"
    )
    some = small.plan(SMALL.objects(torch.tensor([0, 1, 2, 3, 5, 4])), goal[1:3], exact=False)
    assert some.outcome is Outcome.SOLVED
    assert small.symbols.state(goal[1:3]) <= some.codes[-1]


def test_symbols_that_were_never_seen(small: ActionModel) -> None:
    goal = SMALL.objects(SMALL.goal())
    larger = PuzzleWorld(3, 3)
    assert small.plan(goal, goal).steps == ()
    with pytest.raises(
        ValueError, match=r"init: expected a set \[elements, 11\], got shape \(9, 15\)"
    ):
        small.plan(larger.objects(larger.goal()), goal)
    raw = ActionModel.fit(torch.tensor([[[1, 0]]]), torch.tensor([[[1, 1]]]), names=["disk", "peg"])
    for ends, outcome in (
        (([[1, 2]], [[1, 1]]), Outcome.UNKNOWN_INIT),
        (([[1, 0]], [[2, 1]]), Outcome.UNKNOWN_GOAL),
    ):
        init, end = map(torch.tensor, ends)
        plan = raw.plan(init, end)
        assert plan.outcome is outcome
        assert "was never seen; seen were" in plan.reason


def test_replay_believes_nothing(small: ActionModel) -> None:
    state = small.symbols.state(SMALL.objects(SMALL.goal()))
    assert len(replay(small, state, ["change-x tile-1 x-0 x-1 y-0"])) == 2
    for step in ("change-x tile-1 x-1 x-0 y-0", "change-x tile-2 x-0 x-2 y-0"):
        with pytest.raises(ValueError, match=r"step 1: change-x .* cannot be done in the model"):
            replay(small, state, [step])
    roads = [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]
    before, after = ([[("car", one)] for one in side] for side in zip(*roads, strict=True))
    model = ActionModel.learn(from_elements(before, after, ["what", "town"]))
    start = model.symbols.state([("car", "a")])
    assert len(replay(model, start, ["change-town town-a town-b"])) == 2
    with pytest.raises(ValueError, match="cannot be done in the model"):  # there is no such road
        replay(model, start, ["change-town town-a town-c"])


class TestSetsOfDifferentSizes:
    """Lamps, of which a set holds those that are lit."""

    def sets(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows = [((), (0,)), ((0,), (0, 1)), ((0, 1), (1,)), ((1,), ()), ((0,), ()), ((), (1,))]
        rows += [((1,), (0, 1)), ((0, 1), (0,))]
        sets, masks = [], []
        for side in zip(*rows, strict=True):
            mask = torch.tensor([[k < len(one) for k in range(2)] for one in side])
            padded = [[*one, *[7] * (2 - len(one))] for one in side]
            sets.append(torch.tensor(padded).unsqueeze(-1))
            masks.append(mask)
        return sets[0], sets[1], masks[0], masks[1]

    def test_what_comes_and_what_leaves(self) -> None:
        before, after, *masks = self.sets()
        options = {"before_valid": masks[0], "after_valid": masks[1], "names": ["lamp"]}
        model = ActionModel.fit(before, after, **options)
        assert model.symbols.values == ((0, 1),)
        assert not model.keeps_size()
        for init, goal in (([], [0, 1]), ([0, 1], []), ([0], [1])):
            ends = [torch.tensor(one).reshape(-1, 1) for one in (init, goal)]
            plan = model.plan(*ends)
            assert (plan.outcome, len(plan.steps)) == (Outcome.SOLVED, 2)
            assert plan.sets[-1] == [(lamp,) for lamp in goal]
            assert all(state.shape[1] == 1 for state in plan.states)

    def test_what_is_nowhere(self) -> None:
        """A block in the hand is in no cell: a goal may be that something is not there."""
        cells = [[("block", 1)], [("block", 2)], [("block", 3)]]
        nothing: list[list[tuple[str, int]]] = [[]] * 3
        model = ActionModel.learn(
            from_elements(
                cells + nothing,
                nothing + cells,
                ["what", "cell"],
                ["lift"] * 3 + ["put on 1", "put on 2", "put on 3"],
            )
        )
        assert {schema.name for schema in model.schemas} == {"lift", "put on 1"}
        gone = model.plan(cells[0], [])
        assert (gone.steps, gone.sets) == (("lift cell-1",), [[("block", 1)], []])
        moved = model.plan(cells[0], cells[2])
        assert moved.steps == ("lift cell-1", "put-on-1 cell-3")
        both = model.plan(cells[0], [("block", 1), ("block", 2)])
        assert both.outcome is Outcome.UNSOLVABLE

    def test_masks_are_checked(self) -> None:
        before, after, mask, _ = self.sets()
        with pytest.raises(ValueError, match=r"after_valid: expected bool \(8, 2\), got"):
            ActionModel.fit(before, after, before_valid=mask, after_valid=mask.float())


class TestWhatIsRefused:
    def test_lengths(self) -> None:
        symbols = puzzle_model(3, 2, 2, seed=0, lift=True).symbols
        state = frozenset({0})
        with pytest.raises(ValueError, match="2 sets before, but 1 after"):
            Recording(symbols, (state, state), (state,))
        with pytest.raises(ValueError, match="actions: expected 1 names, got 2"):
            Recording(symbols, (state,), (state,), ("go", "stop"))
        with pytest.raises(ValueError, match="1 sets before, but 0 after"):
            from_elements([[("a",)]], [], ["what"])

    def test_contradictions(self) -> None:
        lamp = [[("lamp", "off")]] * 2
        with pytest.raises(ValueError, match="transitions 1 and 2 contradict each other: 'press'"):
            from_elements(lamp, [[("lamp", "on")], [("lamp", "off")]], ["w", "h"], ["press"] * 2)
        free = from_elements(lamp, [[("lamp", "on")], [("lamp", "off")]], ["w", "h"])
        assert len(free) == 2

    def test_elements_that_are_there_twice(self) -> None:
        sets = torch.tensor([[[1, 0], [1, 0]]])
        with pytest.raises(ValueError, match=r"transition 1: \(1, 0\) is there twice before"):
            ActionModel.fit(sets, sets)

    def test_shapes_and_values(self) -> None:
        sets = torch.zeros(3, 2, 4)
        with pytest.raises(ValueError, match="equal but for the elements"):
            ActionModel.fit(sets, sets[:2])
        with pytest.raises(ValueError, match="expected finite numbers"):
            ActionModel.fit(sets / 0, sets)
        with pytest.raises(ValueError, match="elements of 3 numbers, as many as features"):
            ActionModel.fit(sets, sets, sw.Features(sw.Categorical(3)))
        with pytest.raises(ValueError, match="a feature of 4 numbers is not one-hot"):
            ActionModel.fit(sets, sets, sw.Features(sw.Categorical(4)))
        with pytest.raises(ValueError, match="names: expected 4, one a feature, got 1"):
            ActionModel.fit(sets, sets, names=["x"])
        with pytest.raises(ValueError, match="support: expected a whole number"):
            ActionModel.fit(sets[:, :1], sets[:, :1], support=0)
        with pytest.raises(ValueError, match="holds no transition"):
            Recording(puzzle_model(3, 2, 2, seed=0, lift=True).symbols, (), ())

    def test_real_numbers_are_no_symbols(self) -> None:
        sets = torch.rand(300, 2, 4, generator=torch.Generator().manual_seed(0))
        with pytest.raises(ValueError, match="round those that are not, or let symbols"):
            ActionModel.fit(sets, sets.flip(0))


# All 362,880 states are looked through; the small puzzle above breaks when these do.
@pytest.mark.slow
@pytest.mark.parametrize(("count", "lift", "absent"), [(500, True, True), (5000, False, False)])
def test_the_8_puzzle_is_learned_exactly(count: int, lift: bool, absent: bool) -> None:
    model = puzzle_model(3, 3, count, seed=0, lift=lift, absent=absent)
    assert len(model.actions) == 192
    puzzle = PuzzleWorld()
    assert puzzle_disagreements(model, puzzle) == 0
    if lift:  # as far from the goal as any
        start = torch.tensor([8, 0, 6, 5, 4, 7, 2, 3, 1])
        plan = model.plan(puzzle.objects(start), puzzle.objects(puzzle.goal()))
        assert len(plan.steps) == 31
        assert judged(puzzle, plan, start, puzzle.goal())


def test_what_lifting_takes_for_granted() -> None:
    """Arguments that were seen in pairs may meet: wrong for a wall that no element tells of."""
    ways = [(x, x + 1, y) for x in range(5) for y in range(2) if (x, y) != (2, 0)]
    ways += [(there, here, y) for here, there, y in ways]
    before = [[("me", here, y)] for here, _, y in ways]
    after = [[("me", there, y)] for _, there, y in ways]
    recording = from_elements(before, after, ["who", "x", "y"])
    assert len(ActionModel.learn(recording).actions) == len(ways) + 2
    assert len(ActionModel.learn(recording, lift=False).actions) == len(ways)


def test_names_that_pddl_does_not_know() -> None:
    """Whatever features, values and actions are called, the translator takes it."""
    before = [[("A b", -1.5)], [("a-b", 2)], [("a-b", -1.5)], [("A b", 2)]]
    after = [[("A b", 2)], [("a-b", -1.5)], [], [("A b", 2), ("a-b", 2)]]
    done = ["Go!", "Go!", "go?", "reach the goal"]
    model = ActionModel.learn(from_elements(before, after, ["object", "Object"], done))
    assert set(model.domain.written) == {"go", "go-again", "reach-the-goal-again"}
    plan = model.plan(before[1], [])
    assert [step.split()[0] for step in plan.steps] == ["go", "go-again"]
    assert plan.sets == [before[1], before[2], []]


def test_features_whose_names_are_those_of_parameters() -> None:
    """The first of two x, and the only x1."""
    before, after = random_steps(SMALL, 200, seed=0)
    model = ActionModel.fit(before, after, SMALL.features, names=["tile", "x", "x1"])
    start = SMALL.random_walk(5, seed=3)[-1]
    plan = model.plan(SMALL.objects(start), SMALL.objects(SMALL.goal()))
    assert judged(SMALL, plan, start, SMALL.goal())


def test_elements_may_be_lists() -> None:
    recording = from_elements([[["lamp", "off"]]], [[["lamp", "on"]]], ["what", "how"])
    assert recording.symbols.elements(recording.before[0]) == [("lamp", "off")]


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_tensors_are_of_the_kind_that_was_learned_from(dtype: torch.dtype) -> None:
    here = torch.tensor([[[2**40 + 1]]], dtype=dtype)
    model = ActionModel.fit(here, here + 1)
    found = model.symbols.tensor(model.symbols.state(here[0]))
    assert found.dtype is dtype
    assert found.equal(here[0])


def test_actions_can_be_members_of_sets(small: ActionModel) -> None:
    assert len(set(small.actions)) == len(small.actions)
    assert small.actions[0] != small.actions[1]
