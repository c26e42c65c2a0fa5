"""From object sets to checked plans, with an exact coder and with coders that have a defect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

import setwise as sw
from oracle import SMALL, Blurred, Fickle, Forgetful, Oracle, distances
from programs import program
from setwise.models import GumbelSoftmax, SetAutoencoder
from setwise.planning import (
    LatentPlanner,
    Outcome,
    encode_states,
    latent_health,
    random_problems,
    read_problems,
    replay,
    validate,
    write_problems,
)
from setwise.planning.latent import decode_codes
from setwise.worlds import PuzzleWorld

EIGHT = PuzzleWorld()


class TestHealth:
    def test_of_the_oracle(self) -> None:
        health = latent_health(Oracle(SMALL, 24), SMALL)
        assert health.healthy
        assert (health.states, health.codes, health.recovered) == (720, 720, 720)
        assert (health.bits, health.effective_bits, health.permuted) == (24, 24, 720)
        assert "0 states share one" in str(health)
        assert json.loads(json.dumps(health.as_dict()))["healthy"] is True

    def test_chunks_do_not_matter(self) -> None:
        for model in (Oracle(SMALL, 24), Forgetful(SMALL, 24), Blurred(SMALL, 24)):
            assert latent_health(model, SMALL, chunk=100) == latent_health(model, SMALL)

    def test_collisions_are_found(self) -> None:
        model = Forgetful(SMALL, SMALL.number_of_states.bit_length())  # without parities
        health = latent_health(model, SMALL)
        codes = model.encode(SMALL.objects(SMALL.states())).tolist()
        shared = [n for n, code in enumerate(codes) if codes.count(code) > 1]
        assert health.codes == len({tuple(code) for code in codes}) < 720
        assert health.colliding == len(shared)
        assert health.effective_bits == health.bits - 1
        for group in health.collisions:
            assert len(group) > 1
            assert len({tuple(codes[state]) for state in group}) == 1
        assert health.recovered < 720
        assert not health.healthy
        assert f"such as {health.collisions[0]}" in str(health)

    def test_instability_is_found(self) -> None:
        health = latent_health(Fickle(SMALL, 24), SMALL, permuted=500, permutations=3)
        assert health.permuted == 500
        # The blank comes first in the order of the tiles; it does again in 1 of 6 orders.
        assert 470 < health.unstable < 500
        assert health.flipped_bits == 1
        assert not health.healthy

    def test_bad_decoding_is_found(self) -> None:
        model = Blurred(SMALL, 24)
        codes = encode_states(model, SMALL, SMALL.states())
        health = latent_health(model, SMALL, codes=codes)
        assert health.recovered == 720 - int(codes[:, 0].sum())
        assert all(codes[state, 0] for state in health.lost)
        assert health.colliding == health.unstable == 0
        assert not health.healthy

    def test_bits_that_never_change_are_not_counted(self) -> None:
        states = SMALL.states()
        codes = encode_states(Oracle(SMALL, 24), SMALL, states)
        codes[:, 3], codes[:, 5] = True, False
        health = latent_health(Oracle(SMALL, 24), SMALL, states, codes=codes, permutations=0)
        assert health.effective_bits == 22

    def test_of_some_states(self) -> None:
        states = EIGHT.sample(300, seed=0)
        health = latent_health(Oracle(EIGHT, 100), EIGHT, states, permuted=10)
        assert (health.states, health.permuted, health.healthy) == (300, 10, True)


def test_counts_and_sets_have_the_same_codes() -> None:
    torch.manual_seed(0)
    model = SetAutoencoder(6, 11, GumbelSoftmax(16), (32,), (32,), 32)
    states = SMALL.states()
    codes = encode_states(model, SMALL, states, chunk=100)
    in_any_order = model.encode(sw.shuffle_sets(SMALL.objects(states)))
    assert (codes == in_any_order).float().mean() > 0.999  # but for rounding
    outputs = torch.cat(list(decode_codes(model, codes, chunk=100)))
    assert not outputs.requires_grad
    assert torch.allclose(outputs, model.decode(codes), atol=1e-5)


def problems(count: int = 8, steps: int = 14) -> list[tuple[Tensor, Tensor]]:
    drawn = random_problems(SMALL, steps, count, seed=0, start=SMALL.goal())
    return [(problem.init, problem.goal) for problem in drawn]


# The others are compared with one another in test_planning_sas.py, problem by problem.
@pytest.mark.parametrize(
    "encoding", [pytest.param("full", marks=pytest.mark.slow), "bits", "index"]
)
def test_plans_are_optimal(encoding: str) -> None:
    with LatentPlanner(Oracle(SMALL, 40), SMALL, encoding=encoding) as planner:  # type: ignore[arg-type]
        assert len(planner.graph.edges) == SMALL.number_of_transitions
        for init, goal in problems():
            result = planner.solve(init, goal)
            assert result.outcome is Outcome.SOLVED
            assert result.valid
            assert result.report is not None
            assert result.report.optimal
            rank = int(SMALL.rank(SMALL.configuration_of(init)))
            assert result.search is not None
            assert result.search.cost == result.report.length == distances(SMALL)[rank]
            assert result.codes is not None
            assert result.codes.shape == (result.report.length + 1, 40)
            assert result.objects is not None
            assert SMALL.configuration_of(result.objects).tolist() == result.report.states
            assert result.shared == []
            assert set(result.seconds) == {"encode", "write", "search", "decode", "validate"}
            assert json.loads(json.dumps(result.as_dict()))["outcome"] == "solved"


def test_problems_at_the_edge() -> None:
    with LatentPlanner(Oracle(SMALL, 40), SMALL) as planner:
        goal = SMALL.objects(SMALL.goal())
        nothing = planner.solve(goal.flip(0), goal)
        assert nothing.valid
        assert nothing.report is not None
        assert nothing.report.length == 0
        farthest = torch.tensor(distances(SMALL).tolist().index(21.0))
        far = SMALL.objects(SMALL.unrank(farthest))
        assert str(planner.solve(far, goal)) == "optimal plan of 21 steps (a shortest has 21)"
        other_half = SMALL.objects(torch.tensor([0, 2, 1, 3, 4, 5]))
        result = planner.solve(other_half, goal)
        assert result.outcome is Outcome.UNSOLVABLE
        assert not result.valid
        assert (result.codes, result.objects, result.report) == (None, None, None)
        assert str(result).startswith("unsolvable: ")
        spoiled = goal.clone()
        spoiled[0] = spoiled[1]
        with pytest.raises(ValueError, match=r"^goal: no legal state of puzzle-3x2"):
            planner.solve(far, spoiled)


def test_an_unknown_end_is_not_unsolvable() -> None:
    with LatentPlanner(Fickle(SMALL, 40), SMALL) as planner:
        state = SMALL.objects(SMALL.goal())
        known, unknown = state, state.flip(0)  # all states were encoded with the blank first
        result = planner.solve(unknown, known)
        assert result.outcome is Outcome.UNKNOWN_INIT
        assert "differs in 1 bits" in result.reason
        assert result.search is None
        assert not result.valid
        assert planner.solve(known, unknown).outcome is Outcome.UNKNOWN_GOAL
        assert planner.solve(known, known).valid


def test_collisions_lead_to_plans_that_are_refused() -> None:
    """Two states with one code: the plan jumps from one to the other, and the report says so."""
    bits = SMALL.number_of_states.bit_length()
    with LatentPlanner(Forgetful(SMALL, bits), SMALL) as planner:
        results = [planner.solve(*problem) for problem in problems()]
    refused = [result for result in results if not result.valid]
    assert refused
    for result in refused:
        assert result.outcome is Outcome.SOLVED
        assert result.shared
        assert "codes that other states have too" in str(result)


def test_bad_decoding_leads_to_plans_that_are_refused() -> None:
    with LatentPlanner(Blurred(SMALL, 40), SMALL) as planner:
        results = [planner.solve(*problem) for problem in problems(4)]
    for result in results:
        assert result.codes is not None
        assert result.report is not None
        blurred = result.codes[:, 0].nonzero()[:, 0].tolist()
        assert [fault.at for fault in result.report.faults] == blurred
        assert {str(fault.kind) for fault in result.report.faults} <= {"illegal state"}


def test_a_planner_that_lies(tmp_path: Path) -> None:
    init, goal = problems(1)[0]
    with LatentPlanner(Oracle(SMALL, 40), SMALL, directory=tmp_path) as planner:
        for plan, reason in (
            ("(t99999)", "step 1 of the plan: there is no operator t99999"),
            ("(move)", "operator: expected t0, t1, ..., got 'move'"),
            ("", "the plan's 0 steps do not lead to the goal"),
        ):
            fake = program(tmp_path / "fake", f"#!/bin/sh\nprintf '%s' '{plan}' > plan\n")
            result = planner.solve(init, goal, executable=fake)
            assert result.outcome is Outcome.ERROR
            assert result.reason == reason
            assert not result.valid
            assert result.search is not None
        slow = program(tmp_path / "slow", "#!/bin/sh\nsleep 100\n")
        late = planner.solve(init, goal, executable=slow, seconds=0.2)
        assert late.outcome is Outcome.OUT_OF_TIME
        places = sorted(path.name for path in tmp_path.glob("setwise-latplan-*/*"))
        assert places == ["operators"]
        before, after = planner.graph.edges[7].tolist()
        assert replay(planner.graph, ["t7"], before, after) == [before, after]
        with pytest.raises(ValueError, match=r"^step 2 of the plan: t7 does not apply there"):
            replay(planner.graph, ["t7", "t7"], before, after)
    assert not list(tmp_path.glob("setwise-latplan-*"))


class TestProblems:
    def test_are_walks_from_the_goal(self) -> None:
        for steps in (7, 14):
            drawn = random_problems(EIGHT, steps, 20, seed=0, start=EIGHT.goal())
            assert [problem.name for problem in drawn][:2] == [
                f"puzzle-3x3-{steps}-00",
                f"puzzle-3x3-{steps}-01",
            ]
            inits = EIGHT.configuration_of(torch.stack([problem.init for problem in drawn]))
            goals = EIGHT.configuration_of(torch.stack([problem.goal for problem in drawn]))
            assert len(inits.unique(dim=0)) == 20
            assert goals.equal(EIGHT.goal().expand(20, 9))
            parity = inits.argmin(-1) // 3 + inits.argmin(-1) % 3
            assert (parity % 2 == steps % 2).all()

    def test_never_change(self) -> None:
        """Published results rest on these."""
        one, two = random_problems(EIGHT, 14, 2, seed=0, start=EIGHT.goal())
        assert EIGHT.configuration_of(one.init).tolist() == [0, 4, 5, 3, 2, 8, 1, 6, 7]
        assert two.init.argmax(-1).tolist() == [0, 6, 3, 7, 5, 4, 2, 8, 1]

    def test_depend_on_the_seed(self) -> None:
        def text(seed: int, count: int = 5) -> str:
            return write_problems(random_problems(EIGHT, 7, count, seed, start=EIGHT.goal()), EIGHT)

        assert text(0) == text(0)
        assert text(0) != text(1)
        assert text(0, 4).splitlines()[1:4] == text(0, 5).splitlines()[1:4]

    def test_may_start_anywhere(self) -> None:
        drawn = random_problems(SMALL, 3, 10, seed=0, start_is="init")
        inits = SMALL.configuration_of(torch.stack([problem.init for problem in drawn]))
        assert inits.equal(SMALL.sample(10, seed=0))
        assert all(
            SMALL.solvable(init, SMALL.configuration_of(problem.goal))
            for init, problem in zip(inits, drawn, strict=True)
        )

    def test_objects_come_in_random_order(self) -> None:
        drawn = random_problems(EIGHT, 7, 10, seed=0, start=EIGHT.goal())
        assert len({tuple(problem.goal[:, :9].argmax(-1).tolist()) for problem in drawn}) == 10

    def test_too_few(self) -> None:
        with pytest.raises(ValueError, match=r"no more than 2 distinct problems of 1 steps"):
            random_problems(EIGHT, 1, 3, seed=0, start=EIGHT.goal())
        with pytest.raises(ValueError, match=r"^steps: .* got -1"):
            random_problems(EIGHT, -1, 3, seed=0)
        with pytest.raises(ValueError, match=r"^start_is: .* got 'end'"):
            random_problems(EIGHT, 1, 3, seed=0, start_is="end")  # type: ignore[arg-type]

    def test_json_comes_back(self) -> None:
        drawn = random_problems(SMALL, 7, 3, seed=0, start=SMALL.goal())
        back = read_problems(write_problems(drawn, SMALL), SMALL)
        for one, two in zip(drawn, back, strict=True):
            assert one.name == two.name
            assert SMALL.configuration_of(one.init).equal(SMALL.configuration_of(two.init))
            assert SMALL.configuration_of(one.goal).equal(SMALL.configuration_of(two.goal))

    def test_json_of_a_user(self) -> None:
        objects = SMALL.objects(torch.tensor([1, 0, 2, 3, 4, 5])).flip(0)
        state = [0, 1, 2, 3, 4, 5]
        for objects_given in (objects.tolist(), objects.int().tolist()):
            given = {"init": objects_given, "goal": state}
            for data in (given, [given], {"problems": [given]}):
                [problem] = read_problems(json.dumps(data), SMALL)
                assert problem.name == "puzzle-3x2-00"
                assert problem.init.equal(objects)
                assert problem.goal.equal(SMALL.objects(SMALL.goal()))


GOAL = [0, 1, 2, 3, 4, 5]
ROWS = SMALL.objects(SMALL.goal()).tolist()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", r"^file: not JSON: "),
        ("[" * 100_000, r"^file: not JSON: "),
        ("[]", r"^file: expected .* at least one problem"),
        ("3", r"^file: expected .* at least one problem"),
        ({"domain": "puzzle-3x3", "problems": []}, r"domain: expected 'puzzle-3x2', got 'puzzle-3"),
        ({"problem": [], "problems": []}, r"expected domain and problems, got also \['problem'\]"),
        ([5], r"^file: problem 0: expected .* got 5"),
        ([{"init": GOAL, "goal": GOAL}, {"init": GOAL}], r"^file: problem 1: goal is missing"),
        ({"init": GOAL, "gaol": GOAL}, r"problem 0: expected name, init and goal, .*\['gaol'\]"),
        ({"init": GOAL, "goal": GOAL, "name": 3}, r"problem 0: name: expected a text, got 3"),
        *(
            (
                {"init": GOAL, "goal": GOAL, "name": name},
                r"problem 0: name: expected one that files",
            )
            for name in ("../x", "/x", "a/b", "a\\b", "", " ", "a\nb", "a\0")
        ),
        (
            [{"init": GOAL, "goal": GOAL, "name": name} for name in ("x", "y", "x")],
            r"^file: problem 2: name: 'x' is that of problem 0",
        ),
        (
            [{"init": GOAL, "goal": GOAL, "name": "puzzle-3x2-01"}, {"init": GOAL, "goal": GOAL}],
            r"^file: problem 1: name: 'puzzle-3x2-01' is that of problem 0",
        ),
        ({"init": 7, "goal": GOAL}, r"problem 0: init: expected a list .* got 7"),
        ({"init": [], "goal": GOAL}, r"problem 0: init: expected a list .* got \[\]"),
        ({"init": [0, 1, True, 3], "goal": GOAL}, r"problem 0: init: expected a list"),
        ({"init": GOAL, "goal": GOAL[1:]}, r"goal: no legal state of .* \[\*, 6\], got \(5,\)"),
        ({"init": GOAL, "goal": [0, 1, 2, 3, 4, 4]}, r"goal: no legal state .* each tile"),
        ({"init": GOAL, "goal": [0, 1, 2, 3, 4, 10**30]}, r"goal: no legal state "),
        ({"init": [[0, 1], [2]], "goal": GOAL}, r"init: expected a list .* equally long"),
        ({"init": [[0, "a"]], "goal": GOAL}, r"init: objects: expected numbers, got 'a'"),
        ({"init": ROWS[:5], "goal": GOAL}, r"init: no legal state .*\(5, 11\)"),
        ({"init": [ROWS[0], *ROWS[:5]], "goal": GOAL}, r"init: no legal state .* each tile"),
        ({"init": [[0.5] * 11] * 6, "goal": GOAL}, r"init: no legal state .* not one-hot"),
        ({"init": [[float("nan")] * 11] * 6, "goal": GOAL}, r"init: no legal state .* not one-hot"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(data: object, message: str) -> None:
    text = data if isinstance(data, str) else json.dumps(data)
    with pytest.raises(ValueError, match=message):
        read_problems(text, SMALL, source="file")


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_no_number_is_no_object(value: float) -> None:
    """Even if the first of all classes, which is then chosen, would be right."""
    goal = SMALL.goal()
    outputs = SMALL.objects(goal).unsqueeze(0)
    assert outputs[0, 0].nonzero()[:, 0].tolist() == [0, SMALL.tiles, SMALL.tiles + SMALL.width]
    assert SMALL.recovers(outputs, goal.unsqueeze(0)).all()
    outputs[0, 0, 0] = value
    assert not SMALL.recovers(outputs, goal.unsqueeze(0)).any()
    report = validate(SMALL, SMALL.read(outputs), SMALL.objects(goal), SMALL.objects(goal))
    assert [str(fault.kind) for fault in report.faults] == ["illegal state"]
    assert report.faults[0].nearest == goal.tolist()
