"""Table 5: problems are counted and classified, and records are those of the other tables."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from oracle import SMALL, Blurred, Forgetful, Oracle
from setwise.experiments import store
from setwise.experiments.recipes import PLANNED, table1, table3, table5
from setwise.experiments.recipes.table5 import PAPER, QUICK, Scenario
from setwise.planning import (
    Failure,
    Fault,
    FaultKind,
    LatentPlanner,
    Outcome,
    PlanningResult,
    Report,
    failure_of,
    problems_for,
)
from setwise.planning.learned import LearnedSpace
from setwise.planning.table5 import PlanningSettings, plan_network, unsolved
from setwise.report import tables
from setwise.worlds import PuzzleWorld

SH, A1H = "set_cross_entropy", "set_average"
CONFIG = table1.quick("4", SH, 3)
WALKS = [Scenario(f"puzzle-{steps}", "puzzle", steps, problems=4) for steps in (3, 7)]


def result(
    *faults: tuple[FaultKind, int], shared: tuple[int, ...] = (), length: int = 4
) -> PlanningResult:
    found = [Fault(kind, at, "because") for kind, at in faults]
    report = Report([[0]] * (length + 1), found, length, length)
    return PlanningResult(Outcome.SOLVED, "", None, None, report, list(shared), None, {})


def without_plan(outcome: Outcome) -> PlanningResult:
    return PlanningResult(outcome, "", None, None, None, [], None, {})


STATE, STEP = FaultKind.ILLEGAL_STATE, FaultKind.ILLEGAL_STEP


@pytest.mark.parametrize(
    ("given", "failure"),
    [
        (result(), None),
        (result(shared=(2,)), None),  # two states share a code, but the right one was decoded
        (without_plan(Outcome.UNKNOWN_INIT), Failure.UNKNOWN_INIT),
        (without_plan(Outcome.UNKNOWN_GOAL), Failure.UNKNOWN_GOAL),
        *((without_plan(o), Failure.NO_PLAN) for o in (Outcome.UNSOLVABLE, Outcome.OUT_OF_TIME)),
        (result((STATE, 0)), Failure.BAD_INIT),
        (result((FaultKind.WRONG_INIT, 0), (STEP, 2)), Failure.BAD_INIT),
        (result((STATE, 4)), Failure.BAD_GOAL),
        (result((STATE, 1), (FaultKind.WRONG_GOAL, 4)), Failure.BAD_GOAL),
        (result((STATE, 2), (STEP, 4)), Failure.BAD_STATE),
        (result((STEP, 3)), Failure.ILLEGAL_STEP),
        (result((STEP, 3), shared=(3,)), Failure.COLLISION),
        (result((STEP, 3), shared=(2,)), Failure.COLLISION),
        (result((STEP, 3), shared=(4,)), Failure.ILLEGAL_STEP),
        (result((STATE, 0), shared=(0,)), Failure.COLLISION),
    ],
)
def test_failures_are_classified(given: PlanningResult, failure: Failure | None) -> None:
    assert failure_of(given) is failure


def test_defects_of_networks_are_told_apart() -> None:
    """Collisions make plans of which some are wrong; bad decoding makes bad states."""
    kinds: dict[str, set[Failure | None]] = {}
    bits = SMALL.number_of_states.bit_length()
    for model in (Oracle(SMALL, bits), Forgetful(SMALL, bits), Blurred(SMALL, bits)):
        with LatentPlanner(model, SMALL) as planner:
            problems = problems_for(SMALL, steps=14, count=8, seed=0)
            found = {failure_of(planner.solve(one.init, one.goal)) for one in problems}
        kinds[type(model).__name__] = found
    assert kinds["Oracle"] == {None}
    assert Failure.COLLISION in kinds["Forgetful"]
    assert kinds["Forgetful"] <= {None, Failure.COLLISION}
    assert kinds["Blurred"] & {Failure.BAD_INIT, Failure.BAD_GOAL, Failure.BAD_STATE}


def test_scenarios_are_those_of_the_paper() -> None:
    sheet = PLANNED["table5"]
    assert list(PAPER) == list(sheet.scenarios)
    assert [scenario.problems for scenario in PAPER.values()] == [20, 20, 10, 10, 10]
    assert set(QUICK) <= set(PAPER)
    assert list(QUICK) == list(PLANNED["table5-quick"].scenarios)
    assert sheet.reference is not None
    assert set(sheet.reference.values) == {SH, A1H} == set(sheet.losses)
    for values in sheet.reference.values.values():
        assert list(values) == list(PAPER)
        assert all(values[name] <= scenario.problems for name, scenario in PAPER.items())
    assert PAPER["puzzle-7"].fits(CONFIG)
    assert not PAPER["puzzle-7"].fits(table3.paper("4", SH, 0))
    assert PAPER["blocks-3"].fits(table5.blocks("4", SH, 0))
    assert not PAPER["blocks-3"].fits(CONFIG)


def test_problems_of_the_puzzle_lead_to_its_goal() -> None:
    eight = PuzzleWorld()
    scenario = PAPER["puzzle-14"]
    problems = problems_for(eight, scenario.steps, scenario.problems, seed=0)
    goals = eight.configuration_of(torch.stack([problem.goal for problem in problems]))
    assert goals.equal(eight.goal().expand(20, 9))


@pytest.fixture
def space(tmp_path: Path) -> LearnedSpace:
    """An exact coder in place of a network."""
    return LearnedSpace(tmp_path / "none", CONFIG, Oracle(SMALL, 24), SMALL)  # type: ignore[arg-type]


def test_records_are_those_of_a_table(space: LearnedSpace, tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    plan_network(
        "table5-quick",
        space,
        WALKS,
        tmp_path,
        settings=PlanningSettings(),
        commit="abc",
        watch=lambda scenario, number, _: told.append((scenario.name, number)),
    )
    assert told == [(s.name, n) for s in WALKS for n in range(1, 5)]
    three, seven = store.read(tmp_path / "table5-quick.jsonl")
    assert (three["scenario"], seven["scenario"]) == ("puzzle-3", "puzzle-7")
    assert (seven["loss"], seven["seed"], seven["experiment"]) == (SH, 3, "table5-quick")
    assert seven["metrics"] == {"solved": 4, "optimal": 4, "found": 4, "problems": 4}
    assert seven["environment"]["commit"] == "abc"
    assert seven["health"]["healthy"] is True
    assert seven["config"]["planning"]["encoding"] == "index"
    assert seven["config"]["trained"] == {"experiment": "table1-quick", "scenario": "4"}
    for problem in seven["problems"]:
        assert problem["valid"]
        assert problem["failure"] is None
        assert problem["length"] == problem["optimum"]
        assert problem["faults"] == []
        assert problem["expanded"] > 0
        assert set(problem["seconds"]) == {"encode", "write", "search", "decode", "validate"}
    assert len({problem["name"] for problem in seven["problems"]}) == 4
    [cell, *_] = tables.cells(PLANNED["table5"], [seven])
    assert (cell.best, cell.runs, cell.reference) == (4, 1, 20)


def test_failures_are_recorded(space: LearnedSpace, tmp_path: Path) -> None:
    broken: Any = Blurred(SMALL, 24)
    records = plan_network(
        "table5", replace(space, model=broken), WALKS[1:], tmp_path, settings=PlanningSettings()
    )
    [record] = json.loads(json.dumps(records))
    failed = [problem for problem in record["problems"] if not problem["valid"]]
    assert record["metrics"]["solved"] == 4 - len(failed) < 4
    assert record["metrics"]["found"] == 4
    assert record["health"]["healthy"] is False
    for problem in failed:
        assert problem["failure"].startswith("bad reconstruction")
        assert "illegal state" in problem["faults"][0]


def test_what_is_recorded_is_not_planned_again(space: LearnedSpace, tmp_path: Path) -> None:
    settings = PlanningSettings()
    blocks = PAPER["blocks-3"]

    def left(config: Any = CONFIG, **changes: Any) -> list[Scenario]:
        return unsolved("table5", config, [*WALKS, blocks], tmp_path, replace(settings, **changes))

    assert left() == WALKS
    plan_network("table5", space, WALKS[:1], tmp_path, settings=settings)
    assert left() == WALKS[1:]
    assert left(replace(CONFIG, seed=4)) == WALKS
    assert left(replace(CONFIG, loss=A1H)) == WALKS
    assert left(heuristic="hmax") == WALKS
    assert left(table5.blocks("4", SH, 0)) == [blocks]
    # Fields that came later have their defaults in older records, whatever these are called.
    [record] = store.read(tmp_path / "table5.jsonl")
    (tmp_path / "table5.jsonl").unlink()
    store.append(tmp_path / "table5.jsonl", [older(record)])
    assert left() == WALKS[1:]
    assert left(heuristic="hmax") == WALKS
    # Networks that differ in more than the seed are no runs of one cell.
    other = replace(space, config=table1.paper("4", SH, 4))
    plan_network("table5", other, WALKS[:1], tmp_path, settings=settings)
    PLANNED["table5"].write(tmp_path)
    with pytest.raises(
        ValueError, match=r"^table5: runs of set_cross_entropy in scenario puzzle-3 differ"
    ):
        tables.read_experiments(tmp_path)


def older(record: dict[str, Any]) -> dict[str, Any]:
    """As the first release wrote it, before some of the fields were there."""
    config, schedule = record.pop("config"), {}
    for name, value in config.pop("schedule").items():
        if not name.startswith("loss_temperature") and name not in ("recombined", "donors"):
            schedule[name.removeprefix("latent_")] = value
    del config["data"]["dummies"], config["network"]["start_at_prototypes"]
    del config["planning"]["heuristic"], record["schema"]
    config["planning"]["domain"] = config["planning"].pop("world")
    config["trained"]["table"] = config["trained"].pop("experiment")
    config |= {"table": config.pop("experiment"), "loss": "SH", "schedule": schedule}
    table = record.pop("experiment")
    return record | {"table": table, "loss": "SH", "run": "older", "config": config}
