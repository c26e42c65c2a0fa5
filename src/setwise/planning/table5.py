"""Table 5: how many of the paper's problems are solved in the latent space of a network.

The paper plans in the 8-puzzle and in a Blocksworld, with networks trained by set cross entropy and
by the set average. A record is one network in one scenario, in the form of the other tables; its
metric ``solved`` is the number of valid plans, and every problem is listed with what became of it.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from setwise import environment
from setwise.experiments import records, store
from setwise.experiments.config import Config, config_from
from setwise.experiments.recipes.table5 import Scenario
from setwise.planning.failures import failure_of
from setwise.planning.instances import Problem, problems_for
from setwise.planning.latent import LatentHealth, device_of
from setwise.planning.latplan import LatentPlanner, PlanningResult
from setwise.planning.learned import LearnedSpace
from setwise.planning.sas import Encoding

# Told of every problem: the scenario, its number from 1, and what became of it.
Watch = Callable[[Scenario, int, PlanningResult], None]


@dataclass(frozen=True)
class PlanningSettings:
    """How problems are drawn and solved."""

    encoding: Encoding = "index"
    heuristic: str = "blind"
    seed: int = 0


# What a record is of.
Done = tuple[Config, Scenario, PlanningSettings]


def unsolved(
    table: str,
    config: Config,
    scenarios: Iterable[Scenario],
    results: Path,
    settings: PlanningSettings,
) -> list[Scenario]:
    """The scenarios that fit a network and have no record of it."""
    return _left(config, scenarios, settings, _recorded(table, results))


def finished(
    table: str, scenarios: Sequence[Scenario], results: Path, settings: PlanningSettings
) -> set[Config]:
    """The networks that have a record of every scenario that fits them."""
    done = _recorded(table, results)
    return {config for config, _, _ in done if not _left(config, scenarios, settings, done)}


def _recorded(table: str, results: Path) -> set[Done]:
    """What was done, not its name: fields that a later version adds take their defaults."""
    return {_done(record["config"]) for record in records.read(results / f"{table}.jsonl")}


def _left(
    config: Config, scenarios: Iterable[Scenario], settings: PlanningSettings, done: set[Done]
) -> list[Scenario]:
    fitting = [scenario for scenario in scenarios if scenario.fits(config)]
    return [scenario for scenario in fitting if (config, scenario, settings) not in done]


def plan_network(
    table: str,
    space: LearnedSpace,
    scenarios: Sequence[Scenario],
    results: Path,
    *,
    settings: PlanningSettings,
    commit: str | None = None,
    watch: Watch = lambda scenario, number, result: None,
) -> list[dict[str, Any]]:
    """Plan with one network, and add a record for every scenario to ``results/<table>.jsonl``."""
    began = time.monotonic()
    new = []
    with LatentPlanner(space.model, space.world, encoding=settings.encoding) as planner:
        health = planner.health()
        # What is done once for all scenarios is charged to all of them alike.
        once = (time.monotonic() - began) / max(1, len(scenarios))
        for scenario in scenarios:
            began, found = time.monotonic(), []
            walks = (scenario.steps, scenario.problems, settings.seed)
            for problem in problems_for(space.world, *walks):
                result = planner.solve(problem.init, problem.goal, heuristic=settings.heuristic)
                found.append((problem, result))
                watch(scenario, len(found), result)
            seconds = once + time.monotonic() - began
            record = planning_record(table, space.config, scenario, settings, found, health)
            record |= {
                "members": 1,
                "seconds": round(seconds, 2),
                "finished": datetime.now(UTC).isoformat(timespec="seconds"),
                "environment": environment.describe(device_of(space.model), commit),
            }
            store.append(results / f"{table}.jsonl", [record])
            new.append(record)
    return new


def planning_record(
    table: str,
    config: Config,
    scenario: Scenario,
    settings: PlanningSettings,
    found: Sequence[tuple[Problem, PlanningResult]],
    health: LatentHealth,
) -> dict[str, Any]:
    """What a record says of the problems themselves; where they were solved is added to it."""
    results = [result for _, result in found]
    reports = [result.report for result in results if result.report is not None]
    told = described(table, config, scenario, settings)
    return {
        "schema": records.SCHEMA,
        "run": _identity(told),
        "experiment": table,
        "scenario": scenario.name,
        "loss": config.loss,
        "seed": config.seed,
        "metrics": {
            "solved": sum(result.valid for result in results),
            "optimal": sum(report.optimal for report in reports),
            "found": len(reports),
            "problems": len(results),
        },
        "history": {},
        "health": health.as_dict(),
        "problems": [_problem_record(problem, result) for problem, result in found],
        "config": told,
    }


def _problem_record(problem: Problem, result: PlanningResult) -> dict[str, Any]:
    report, failure = result.report, failure_of(result)
    return {
        "name": problem.name,
        "outcome": str(result.outcome),
        "valid": result.valid,
        "failure": None if failure is None else str(failure),
        "length": None if report is None else report.length,
        "optimum": None if report is None else report.optimum,
        "faults": [str(fault) for fault in report.faults] if report else [result.reason],
        "shared": result.shared,
        "expanded": None if result.search is None else result.search.expanded,
        "peak_mb": None if result.search is None else result.search.peak_mb,
        "seconds": {name: round(seconds, 3) for name, seconds in result.seconds.items()},
    }


def described(
    table: str, config: Config, scenario: Scenario, settings: PlanningSettings
) -> dict[str, Any]:
    """Everything that decides a record: how the network was trained, and what is planned."""
    walks = {"world": scenario.world, "steps": scenario.steps, "problems": scenario.problems}
    return config.as_dict() | {
        "experiment": table,
        "scenario": scenario.name,
        "trained": {"experiment": config.experiment, "scenario": config.scenario},
        "planning": walks | asdict(settings),
    }


def _done(told: dict[str, Any]) -> Done:
    """The way back from `described`."""
    trained = {name: told[name] for name in told if name not in ("trained", "planning")}
    planning = dict(told["planning"])
    walks = {name: planning.pop(name) for name in ("world", "steps", "problems")}
    scenario = Scenario(told["scenario"], **walks)
    return config_from(trained | told["trained"]), scenario, PlanningSettings(**planning)


def _identity(told: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
