"""The Blocksworld as a world: noisy object vectors are recognised, wrong ones are refused."""

from __future__ import annotations

import itertools
import json

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.data.blocksworld import Blocksworld
from setwise.planning import (
    LatentPlanner,
    Outcome,
    encode_states,
    latent_health,
    random_problems,
    read_problems,
    shortest_length,
    validate,
    write_problems,
)
from setwise.worlds import PicturedBlocksworld
from setwise.worlds.recognise import _least_sums

WORLD = Blocksworld(blocks=3, stacks=3)
LOOK, ACROSS, DOWN = 24, 30, 20
FEATURES = sw.Features(sw.Bernoulli(LOOK), sw.Categorical(ACROSS), sw.Categorical(DOWN))
HEIGHTS = torch.tensor([3, 4, 5])  # of the blocks, in cells of the grid


def pictures(seed: int) -> Tensor:
    """Object vectors [S, N, F] as of photographs: looks with noise, places that jitter by a cell.

    A block has its colour, metal adds a pattern, and how high it lies depends on those below.
    """
    generator = torch.Generator().manual_seed(0)
    colours = torch.rand(3, LOOK, generator=generator)
    shine = 0.25 * torch.randn(LOOK, generator=generator)
    states = WORLD.states()
    stack, level, metal = states.unbind(-1)
    generator.manual_seed(seed)
    noise = 0.03 * torch.randn(*stack.shape, LOOK, generator=generator)
    look = (colours + metal.unsqueeze(-1) * shine + noise).clamp(0, 1)
    below = (stack.unsqueeze(-1) == stack.unsqueeze(-2)) & (
        level.unsqueeze(-1) > level.unsqueeze(-2)
    )
    jitter = torch.randint(0, 2, (2, *stack.shape), generator=generator)
    x, y = 3 + 9 * stack + jitter[0], (below * HEIGHTS).sum(-1) + jitter[1]
    places = [torch.nn.functional.one_hot(x, ACROSS), torch.nn.functional.one_hot(y, DOWN)]
    return torch.cat([look, *places], dim=-1)


VECTORS = pictures(seed=1)
BLOCKS = PicturedBlocksworld(WORLD, VECTORS, FEATURES)
START = torch.tensor([0, 0, 0, 0, 1, 1, 2, 0, 0])  # block 1, of metal, lies on block 0


class Photographer:
    """Codes are ranks in binary; decoding gives another picture of the same state, as logits."""

    def __init__(self, seed: int = 2) -> None:
        self.bits = (WORLD.number_of_states - 1).bit_length()
        self.outputs = FEATURES.from_probs(pictures(seed))

    def encode(self, sets: Tensor) -> Tensor:
        ranks, _ = BLOCKS._recogniser.nearest(sets)
        return (ranks.unsqueeze(-1) >> torch.arange(self.bits) & 1).bool()

    def decode(self, codes: Tensor) -> Tensor:
        ranks = (codes << torch.arange(self.bits)).sum(-1)
        return self.outputs[ranks.clamp(max=WORLD.number_of_states - 1)].flip(-2)


def test_other_pictures_of_all_states_are_recognised() -> None:
    others = sw.shuffle_sets(pictures(seed=3), torch.Generator().manual_seed(0))
    ranks, doubts = BLOCKS._recogniser.nearest(others)
    assert ranks.equal(torch.arange(WORLD.number_of_states))
    assert doubts.shape == (WORLD.number_of_states, 3, 2)
    assert doubts.amax() < 1
    ranks, doubts = BLOCKS._recogniser.nearest(VECTORS)
    assert ranks.equal(torch.arange(WORLD.number_of_states))
    assert doubts[..., 0].amax() < 0.05  # they are among the known ones
    assert doubts[..., 1].amax() <= 0.5


def test_memory_is_bounded_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    some = VECTORS[::37]
    whole = BLOCKS._recogniser.nearest(some)
    monkeypatch.setattr("setwise.worlds.recognise._NUMBERS_AT_ONCE", 5000)
    parts = BLOCKS._recogniser.nearest(some)
    assert whole[0].equal(parts[0])
    torch.testing.assert_close(whole[1], parts[1])


def test_the_least_sums_are_those_of_all_pairings() -> None:
    costs = torch.rand(4, 4, 7, 4, generator=torch.Generator().manual_seed(0))
    pairings = [
        sum(costs[:, one, :, block] for block, one in enumerate(order))
        for order in itertools.permutations(range(4))
    ]
    torch.testing.assert_close(_least_sums(costs), torch.stack(pairings).amin(0))  # type: ignore[arg-type]


class TestWorld:
    def test_looks_may_be_of_any_family(self) -> None:
        """Colours as real numbers: what the network puts out is their mean, no probability."""
        features = sw.Features(sw.Gaussian(LOOK), *FEATURES.blocks[1:])
        blocks = PicturedBlocksworld(WORLD, VECTORS, features)
        outputs = features.from_probs(VECTORS)
        look = slice(0, LOOK)
        assert blocks.read(outputs)[..., look].equal(outputs[..., look])
        assert blocks.recovers(outputs, blocks.states()).all()
        probabilities = BLOCKS.read(FEATURES.from_probs(VECTORS))
        torch.testing.assert_close(probabilities, VECTORS, atol=1e-5, rtol=0)

    def test_looks_and_places_are_both_needed(self) -> None:
        with pytest.raises(ValueError, match=r"^features: expected some that say how an element"):
            PicturedBlocksworld(WORLD, VECTORS, sw.Features(sw.Bernoulli(FEATURES.width)))

    def test_is_that_of_the_simulator(self) -> None:
        states = BLOCKS.states()
        assert states.shape == (480, 9)
        assert len(BLOCKS.transitions()) == WORLD.number_of_transitions
        after, legal = BLOCKS.successors(states)
        assert int(legal.sum()) == WORLD.number_of_transitions
        assert BLOCKS.is_legal_move(states.unsqueeze(1).expand_as(after)[legal], after[legal]).all()
        assert BLOCKS.objects(states).equal(VECTORS)
        assert BLOCKS.sample(5, seed=0).shape == (5, 9)
        assert BLOCKS.name == "blocks-3x3"

    def test_states_and_steps_in_words(self) -> None:
        assert BLOCKS.describe(START) == "[0 1*] [] [2]"
        moved, polished = START.clone(), START.clone()
        moved[3:6] = torch.tensor([1, 0, 1])
        polished[5] = 0
        assert BLOCKS.action(START, moved) == "move block 1, now in the middle"
        assert BLOCKS.action(START, polished) == "unpolish block 1"
        named = PicturedBlocksworld(WORLD, VECTORS, FEATURES, names=["a", "the red cube", "c"])
        assert named.action(START, moved) == "move the red cube, now in the middle"
        with pytest.raises(ValueError, match=r"^names: expected 3"):
            PicturedBlocksworld(WORLD, VECTORS, FEATURES, names=["a"])

    def test_two_stacks_keep_an_order(self) -> None:
        world = Blocksworld(blocks=3, stacks=2)
        vectors = VECTORS[: world.number_of_states]
        two = PicturedBlocksworld(world, vectors, FEATURES)
        states = two.states()
        for goal in states[::50]:
            for start in states[::17]:
                length = shortest_length_by_hand(two, start, goal)
                assert bool(two.solvable(start, goal)) == (length is not None)
        assert BLOCKS.solvable(START, BLOCKS.states()).all()

    def test_bad_calls(self) -> None:
        with pytest.raises(ValueError, match=r"^vectors: expected shape \[480, 3, 74\], .*479"):
            PicturedBlocksworld(WORLD, VECTORS[1:], FEATURES)
        with pytest.raises(ValueError, match=r"^features: .* where it is"):
            PicturedBlocksworld(WORLD, VECTORS, sw.Features(sw.Bernoulli(74)))
        with pytest.raises(ValueError, match=r"^objects: expected shape \[3, 74\], got \(2, 74\)"):
            BLOCKS.configuration_of(VECTORS[0, :2])
        with pytest.raises(ValueError, match=r"^configurations: expected 9 numbers"):
            BLOCKS.describe(START[:6])


def shortest_length_by_hand(world: PicturedBlocksworld, start: Tensor, goal: Tensor) -> int | None:
    """Breadth first, one state after the other."""
    seen, level, length = {tuple(start.tolist())}, [start], 0
    while level:
        if any(state.equal(goal) for state in level):
            return length
        following = []
        for state in level:
            after, legal = world.successors(state)
            for one in after[legal]:
                if (key := tuple(one.tolist())) not in seen:
                    seen.add(key)
                    following.append(one)
        level, length = following, length + 1
    return None


class TestValidation:
    """A plan of two steps: block 1 goes to the empty stack and becomes rubber."""

    def plan(self, seed: int = 3) -> Tensor:
        after, last = START.clone(), START.clone()
        after[3:6] = torch.tensor([1, 0, 1])
        last[3:6] = torch.tensor([1, 0, 0])
        ranks = WORLD.rank(torch.stack([START, after, last]).unflatten(-1, (3, 3)))
        return pictures(seed)[ranks]

    def test_a_right_plan(self) -> None:
        states = self.plan()
        report = validate(BLOCKS, sw.shuffle_sets(states), states[0], states[-1])
        assert report.valid
        assert report.optimal
        assert report.length == 2

    def test_a_step_left_out(self) -> None:
        states = self.plan()
        report = validate(BLOCKS, states[[0, 2]], states[0], states[-1])
        assert [(str(fault.kind), fault.at) for fault in report.faults] == [("illegal step", 1)]
        assert "block 1 is at level 0 in the middle, not 1 on the left" in report.faults[0].reason
        assert "block 1 became rubber" in report.faults[0].reason

    def test_a_material_that_changes_under_another_block(self) -> None:
        polished = START.clone()
        polished[2] = 1  # of block 0, on which block 1 lies
        states = BLOCKS.objects(torch.stack([START, polished]))
        report = validate(BLOCKS, states, states[0], states[1])
        assert [(str(fault.kind), fault.at) for fault in report.faults] == [("illegal step", 1)]
        assert "block 0 became metal" in report.faults[0].reason
        assert report.optimum == 3

    def test_a_teleported_block(self) -> None:
        states = self.plan()
        jumped = states.clone()
        jumped[1, 1, LOOK:] = 0.0
        jumped[1, 1, [LOOK + 28, LOOK + ACROSS + 18]] = 1.0  # in the air, at the edge
        report = validate(BLOCKS, jumped, states[0], states[-1])
        [fault] = report.faults
        assert (str(fault.kind), fault.at) == ("illegal state", 1)
        assert "object 1 lies where no block can lie" in fault.reason
        assert fault.distance is not None
        assert fault.distance > 1
        assert fault.nearest is not None

    def test_a_block_that_occurs_twice(self) -> None:
        states = self.plan()
        doubled = states.clone()
        doubled[1, 2, :LOOK] = doubled[1, 0, :LOOK]
        report = validate(BLOCKS, doubled, states[0], states[-1])
        assert ("illegal state", 1) in [(str(fault.kind), fault.at) for fault in report.faults]
        assert "looks more like something else" in report.faults[0].reason

    def test_a_picture_of_nothing(self) -> None:
        states = self.plan()
        states[1, :, :LOOK] = 0.5
        _, distance = BLOCKS.nearest(states[1])
        assert distance > 1


class TestPlanning:
    def test_plans_over_pictures_are_valid(self) -> None:
        model = Photographer()
        with LatentPlanner(model, BLOCKS) as planner:
            assert len(planner.graph.codes) == WORLD.number_of_states
            for steps in (3, 7):
                for problem in random_problems(BLOCKS, steps, 4, seed=0, start_is="init"):
                    result = planner.solve(problem.init, problem.goal)
                    assert result.outcome is Outcome.SOLVED
                    assert result.report is not None
                    assert result.report.optimal, str(result)
                    start = BLOCKS.configuration_of(problem.init)
                    goal = BLOCKS.configuration_of(problem.goal)
                    assert result.report.length == shortest_length(BLOCKS, start, goal)

    def test_health_counts_what_comes_back(self) -> None:
        model = Photographer()
        codes = encode_states(model, BLOCKS, BLOCKS.states())
        health = latent_health(model, BLOCKS, codes=codes)
        assert health.codes == health.recovered == 480
        assert health.unstable == 0
        model.outputs[7, 0, :LOOK] = -model.outputs[7, 0, :LOOK]
        model.outputs[9] = model.outputs[8]
        health = latent_health(model, BLOCKS, codes=codes)
        assert health.recovered == 478
        assert health.lost == [7, 9]

    @pytest.mark.parametrize("value", [torch.nan, pytest.param(torch.inf, marks=pytest.mark.slow)])
    def test_a_diverged_network_recovers_nothing(self, value: float) -> None:
        model = Photographer()
        codes = encode_states(model, BLOCKS, BLOCKS.states())
        model.outputs[7, 0, 3] = value  # how it looks
        model.outputs[9, 1, LOOK + 2] = value  # where it lies
        assert latent_health(model, BLOCKS, codes=codes).lost == [7, 9]
        model.outputs[:] = value
        assert latent_health(model, BLOCKS, codes=codes).recovered == 0
        with LatentPlanner(model, BLOCKS) as planner:
            [problem] = random_problems(BLOCKS, 3, 1, seed=0, start_is="init")
            result = planner.solve(problem.init, problem.goal)
        assert result.outcome is Outcome.SOLVED
        assert not result.valid
        assert result.report is not None
        assert result.report.states == [None] * (result.report.length + 1)
        fault = result.report.faults[0]
        assert fault.distance == torch.inf
        assert "has values that are no finite numbers" in str(fault)
        data = json.loads(json.dumps(result.as_dict(), allow_nan=False))
        assert data["report"]["faults"][0]["distance"] is None

    def test_problems_in_words(self) -> None:
        words = {"stacks": [[0, 1], [], [2]], "materials": ["rubber", "metal", "rubber"]}
        given = {"init": words, "goal": START.tolist()}
        [problem] = read_problems(json.dumps(given), BLOCKS)
        assert problem.init.equal(problem.goal)
        assert problem.init.equal(BLOCKS.objects(START))
        [again] = read_problems(write_problems([problem], BLOCKS), BLOCKS)
        assert again.init.equal(problem.init)
        for wrong, message in (
            ({"stacks": [[0, 1], [], [1]], "materials": words["materials"]}, "each of the blocks"),
            ({"stacks": words["stacks"], "materials": ["gold"] * 3}, "rubber or metal"),
            ({"stacks": 5}, 'expected {"stacks": lists of blocks, .* got {.stacks.: 5}'),
        ):
            with pytest.raises(
                ValueError, match=rf"problem 0: goal: no legal state of blocks-3x3: .*{message}"
            ):
                read_problems(json.dumps({"init": words, "goal": wrong}), BLOCKS)
