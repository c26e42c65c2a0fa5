"""Nothing more is allowed than was seen: noise, names of actions, and sets like none seen."""

from __future__ import annotations

import time

import pytest
import torch

from learned_models import puzzle_disagreements, puzzle_model, random_steps
from setwise.planning import ActionModel, Outcome, Recording
from setwise.planning.actions import from_elements
from setwise.planning.actions import plan as plan_module
from setwise.worlds import PuzzleWorld

SMALL = PuzzleWorld(3, 2)
NAMES = ["tile", "x", "y"]


@pytest.fixture(scope="module")
def small() -> ActionModel:
    return puzzle_model(3, 2, 200, seed=0, lift=True)


class TestNoise:
    def test_rare_patterns_and_rare_arguments_are_dropped_and_reported(self) -> None:
        before, after = random_steps(SMALL, 300, seed=0)
        jump = SMALL.objects(torch.tensor([[0, 1, 2, 3, 4, 5], [2, 1, 0, 3, 4, 5]]))  # over a tile
        swap = SMALL.objects(torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 5, 4]]))
        turn = SMALL.objects(torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 0, 3, 4, 5]]))
        noisy = [torch.cat([before, *(s[:1] for s in (jump, swap, turn))])]
        noisy += [torch.cat([after, *(s[1:] for s in (jump, swap, turn))])]
        believed = ActionModel.fit(*noisy, SMALL.features, names=NAMES)
        assert puzzle_disagreements(believed, SMALL) > 0
        assert believed.dropped == ()
        model = ActionModel.fit(*noisy, SMALL.features, names=NAMES, support=3)
        assert puzzle_disagreements(model, SMALL) == 0
        assert sorted(seen for _, seen in model.dropped) == [1, 2]
        assert "dropped, for want of support: 1 seen, removes" in str(model)

    def test_steps_in_which_nothing_is_done(self) -> None:
        before, after = random_steps(SMALL, 50, seed=0)
        model = ActionModel.fit(before.repeat(2, 1, 1), torch.cat([after, before]), SMALL.features)
        assert model.unchanged == 50
        assert str(model).endswith("nothing done: 50 seen")
        assert model.symbols.names == ("feature0", "feature1", "feature2")

    def test_nothing_is_both_demanded_and_forbidden(self) -> None:
        """The lamp was there in 2 of 3: too rare to be allowed, too rarely missing to be none."""
        before = [[("me", 0), ("lamp", 5)]] * 2 + [[("me", 0)]]
        after = [[("me", 1), ("lamp", 5)]] * 2 + [[("me", 1)]]
        model = ActionModel.learn(from_elements(before, after, ["what", "x"]), support=3)
        [action] = model.actions
        assert action.applies(model.symbols.state([("me", 0)]))

    def test_what_is_rare_without_what_was_left_out_is_left_out(self) -> None:
        """Each two arguments of the first were seen twice, but in steps that are rare."""
        ways = [(1, 2, "a"), (1, 9, "a"), (8, 2, "a"), (1, 2, "b"), (5, 6, "c"), (5, 6, "c")]
        before, after = ([[(way[2], way[end])] for way in ways] for end in (0, 1))
        model = ActionModel.learn(from_elements(before, after, ["who", "x"]), support=2)
        assert [schema.seen for schema in model.schemas] == [2]
        assert [seen for _, seen in model.dropped] == [4]

    def test_a_schema_that_can_never_be_done_is_dropped(self) -> None:
        """5 is demanded of all, from where it was there, and to each place it was too rarely."""
        beside = [[(5,)], [(5,)], []]
        before = [[(0,), *rest] for _ in (1, 2) for rest in beside]
        after = [[(to,), *rest] for to in (1, 2) for rest in beside]
        model = ActionModel.learn(from_elements(before, after, ["x"]), support=3)
        assert model.schemas == ()
        assert [seen for _, seen in model.dropped] == [6]
        assert "dropped, for want of support: 6 seen" in str(model)


class TestNamesOfActions:
    """A door that is unlocked with a key, or picked with a pick."""

    NAMES = ("what", "how")

    def recording(self) -> Recording:
        rest = [("key", "held")], [("pick", "held")], [("key", "held"), ("pick", "held")]
        done = [("unlock", rest[0]), ("pick", rest[1]), ("unlock", rest[2]), ("pick", rest[2])]
        before = [[("door", "shut"), *held] for _, held in done]
        after = [[("door", "open"), *held] for _, held in done]
        return from_elements(before, after, self.NAMES, [name for name, _ in done])

    @pytest.mark.parametrize("lift", [True, False])
    def test_each_has_conditions_of_its_own(self, lift: bool) -> None:
        model = ActionModel.learn(self.recording(), lift=lift)
        assert {schema.name for schema in model.schemas} == {"unlock", "pick"}
        with_neither = model.symbols.state([("door", "shut")])
        assert not model.successors(with_neither)
        for held in ("key", "pick"):
            assert len(model.successors(model.symbols.state([("door", "shut"), (held, "held")])))

    def test_arguments_in_names_tell_no_actions_apart(self) -> None:
        ways = [(one, other) for one in range(3) for other in range(3) if one != other]
        before, after = ([[("me", way[end])] for way in ways] for end in (0, 1))
        names = [f"go from {one} to {other}" for one, other in ways]
        model = ActionModel.learn(from_elements(before, after, ["who", "x"], names))
        [schema] = model.schemas
        assert len(model.actions) == len(ways) == schema.seen


class TestStatesLikeNoneSeen:
    """Never were two on one cell; what follows from that does not where two are."""

    def test_no_step_that_the_model_forbids_is_taken(self) -> None:
        ways = [(x, y) for x in range(3) for y in range(3) if x != y]
        before, after = ([[("a", way[end]), ("b", 3 - sum(way))] for way in ways] for end in (0, 1))
        model = ActionModel.learn(from_elements(before, after, ["who", "x"]))
        init, goal = ([("a", x), ("b", 0), ("b", 1)] for x in (0, 2))  # a on a cell of b
        assert not model.successors(model.symbols.state(init))
        plan = model.plan(init, goal)
        assert (plan.outcome, plan.whole) == (Outcome.UNSOLVABLE, True)

    def test_the_whole_domain_plans_what_the_short_one_does(self, small: ActionModel) -> None:
        assert len(small.whole_domain.text()) > len(small.domain.text())
        limits = plan_module._Limits(time.monotonic() + 60, 6000, None)
        start = SMALL.random_walk(5, seed=3)[-1]
        ends = [small.symbols.state(SMALL.objects(one)) for one in (start, SMALL.goal())]
        found = [
            plan_module._planned(small, one, ends, limits, exact=True, searcher="blind")
            for one in (small.domain, small.whole_domain)
        ]
        assert found[0] is not None
        assert found[1] is not None
        assert len(found[0].steps) == len(found[1].steps) > 0


def test_an_element_that_is_there_already_does_not_keep_the_size() -> None:
    """Where nothing forbids, b may come where it is: one less in the end."""
    recording = from_elements([[("a",)], [("c",)]], [[("b",)], [("c",)]], ["what"])
    model = ActionModel.learn(recording, absent=False)
    assert not model.keeps_size()
    assert ActionModel.learn(recording).keeps_size()
    plan = model.plan([("a",), ("b",)], [("b",)])
    assert (plan.outcome, len(plan.steps)) == (Outcome.SOLVED, 1)


def test_limits(small: ActionModel) -> None:
    goal = SMALL.objects(SMALL.goal())
    with pytest.raises(ValueError, match="seconds: expected a positive number, got -1"):
        small.plan(goal, goal, seconds=-1)
    plan = small.plan(SMALL.objects(SMALL.random_walk(9, seed=3)[-1]), goal, seconds=0.01)
    assert plan.outcome is Outcome.OUT_OF_TIME
