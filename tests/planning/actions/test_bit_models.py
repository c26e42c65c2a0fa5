"""Bits and actions of a network, held against the world that they were learned from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.nn import functional

import setwise as sw
from learned_models import judged, random_steps
from setwise.planning import BitActionModel, Outcome
from setwise.planning.actions.bit_network import BitNetwork
from setwise.planning.actions.bit_training import explain
from setwise.worlds import Hanoi, LightsOut

WORLD = Hanoi(2)
FEATURES = sw.Features(sw.Categorical(3), sw.Bernoulli(1))


def network(bits: int = 4, actions: int = 3) -> BitNetwork:
    torch.manual_seed(0)
    made = BitNetwork(3, FEATURES, bits, actions, width=8).eval()
    for parameter in (made.change, made.condition, made.frequency):
        torch.nn.init.normal_(parameter, std=3.0)
    return made


@pytest.fixture(scope="module")
def model() -> BitActionModel:
    before, after = random_steps(WORLD, 9, seed=0)
    again = [side.repeat(20, 1, 1) for side in (before, after)]
    return BitActionModel.fit(*again, WORLD.features, bits=16, actions=24, steps=300)


class TestNetwork:
    def test_costs_are_those_of_one_action_and_one_step_at_a_time(self) -> None:
        made = network()
        before, after = torch.randint(
            2, (2, 5, 4), generator=torch.Generator().manual_seed(1)
        ).float()
        stay = functional.softplus(made.stay_logits)
        costs = made.costs(before, after)
        for step in range(5):
            for action in range(3):
                ahead = made.change[action] + stay * (2 * before[step] - 1)
                expected = (
                    functional.binary_cross_entropy_with_logits(ahead, after[step], reduction="sum")
                    + functional.binary_cross_entropy_with_logits(
                        made.condition[action], before[step], reduction="sum"
                    )
                    - made.frequency.log_softmax(0)[action]
                )
                torch.testing.assert_close(costs[step, action], expected)

    def test_effects_depend_on_the_action_alone(self) -> None:
        """What is said to be set or cleared is what the likeliest bits after it are."""
        made = network()
        adds, clears = made.effects()
        every = torch.tensor([[bit >> k & 1 for k in range(4)] for bit in range(16)]).float()
        stay = functional.softplus(made.stay_logits)
        for action in range(3):
            likeliest = made.change[action] + stay * (2 * every - 1) > 0
            assert ((every.bool() & ~clears[action]) | adds[action]).equal(likeliest)
            wrong = made.wrong(every, likeliest.float())[:, action]
            assert not wrong.any()
        assert adds.any()
        assert clears.any()

    def test_the_order_of_elements_does_not_matter(self) -> None:
        made, elements = network(), torch.eye(4)
        which = torch.tensor([[0, 1, 3], [2, 2, 1]])
        for rows in (which, which.flip(-1)):
            torch.testing.assert_close(made.logits_of(elements, rows), made.logits(elements[which]))

    def test_of_actions_that_do_it_the_likeliest_explains_a_step(self) -> None:
        made = network(bits=2, actions=3)
        with torch.no_grad():
            made.change.copy_(torch.tensor([[9.0, 0.0], [9.0, 0.0], [0.0, -9.0]]))
            made.condition.zero_()
            made.frequency.copy_(torch.tensor([0.0, 2.0, 5.0]))
        before = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
        after = torch.tensor([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        action, explained = explain(made, before, after)
        assert action[0] == 1
        assert explained.tolist() == [True, False, False]


# Slow: it trains and plans, for some seconds each. The parts are tested above.
@pytest.mark.slow
class TestModel:
    def test_it_plans_by_what_was_seen(self, model: BitActionModel, tmp_path: Path) -> None:
        assert model.recovered == model.explained == 1.0
        before, after = random_steps(WORLD, 9, seed=0)
        solved = 0
        for one, other in zip(before, after, strict=True):
            plan = model.plan(one, other)
            assert plan.outcome is Outcome.SOLVED
            ends = [WORLD.configuration_of(end) for end in (one, other)]
            solved += judged(WORLD, plan, *ends)
        assert solved == 9
        text = model.write_pddl(tmp_path).read_text()
        assert text.count("(:action") == len(model.model.schemas)
        assert str(model).endswith("100.00% of the transitions are explained")

    def test_what_it_cannot_read_is_unknown(self, model: BitActionModel) -> None:
        known = WORLD.objects(WORLD.states()[0])
        twice = known[:1].expand_as(known)  # the same disk twice
        assert model.plan(twice, known).outcome is Outcome.UNKNOWN_INIT
        plan = model.plan(known, twice)
        assert plan.outcome is Outcome.UNKNOWN_GOAL
        assert plan.reason.startswith("goal: the network does not bring it back")

    def test_sets_may_be_in_another_precision(self, model: BitActionModel) -> None:
        before, after = (side.double() for side in random_steps(WORLD, 9, seed=0))
        assert model.plan(before[0], after[0]).outcome is Outcome.SOLVED
        with pytest.raises(ValueError, match=r"init: expected one set \[N, F\], got shape"):
            model.plan(before, after[0])
        found = BitActionModel.fit(before, after, WORLD.features, bits=8, actions=6, steps=20)
        assert 0.0 <= found.recovered <= 1.0

    def test_the_same_seed_gives_the_same_model(self) -> None:
        before, after = random_steps(WORLD, 9, seed=0)
        torch.manual_seed(3)
        drawn = torch.rand(1)
        one, other = (
            BitActionModel.fit(before, after, WORLD.features, bits=8, actions=6, steps=20)
            for _ in range(2)
        )
        for name, parameter in one.network.state_dict().items():
            assert parameter.equal(other.network.state_dict()[name])
        torch.manual_seed(3)
        assert torch.rand(1).equal(drawn)

    def test_lights(self) -> None:
        """What a press does depends on the lights: an effect for each way in which they may be."""
        world = LightsOut(2, 2)
        before, after = random_steps(world, 16, seed=0)
        again = [side.repeat(8, 1, 1) for side in (before, after)]
        model = BitActionModel.fit(*again, world.features, bits=16, actions=64, steps=300)
        assert model.recovered == 1.0
        assert model.explained > 0.9


def test_what_cannot_be_learned_from() -> None:
    sets = WORLD.objects(WORLD.states())
    with pytest.raises(ValueError, match="expected sets of one size"):
        BitActionModel.fit(sets, sets[:, :1], WORLD.features)
    with pytest.raises(ValueError, match="bits: must be at least 1, got 0"):
        BitActionModel.fit(sets, sets, WORLD.features, bits=0)
    with pytest.raises(TypeError, match="steps: expected an int"):
        BitActionModel.fit(sets, sets, WORLD.features, steps=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="before"):
        BitActionModel.fit(sets[0], sets, WORLD.features)
