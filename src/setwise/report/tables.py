"""From the records of runs to the cells of tables: best, median and worst beside the paper's.

A cell is a loss in a scenario; its runs differ in their seeds and in nothing else.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median
from typing import Any

from setwise.experiments import store
from setwise.experiments.config import LOSSES, Config, config_from
from setwise.report import records as files
from setwise.report.paper import TABLES, PaperTable, base_name, paper_table
from setwise.report.records import NUMBER, TEXT_OR_NOTHING, Kinds, require

Record = dict[str, Any]

HELDOUT = "heldout"

# What is needed of a record, of its environment and of its config; there may be more.
_RUN: Kinds = {
    **{"run": str, "table": str, "scenario": str, "loss": str, "seed": int},
    **{"metrics": dict, "history": dict, "config": dict, "environment": dict},
    **{"members": int, "seconds": NUMBER},
}
_ENVIRONMENT: Kinds = {"hardware": str, "torch": str}
_CONFIG: Kinds = {"loss": str, "scenario": str, "data": dict, "network": dict, "schedule": dict}
_COST: Kinds = {"table": str, "networks": int, "seconds": NUMBER, "seconds_alone": dict}


@dataclass(frozen=True)
class Cell:
    """What the runs of a loss in a scenario came to."""

    loss: str
    scenario: str
    # None where the paper has no such cell.
    paper: float | None
    best: float
    median: float
    worst: float
    runs: int
    # None where nothing was held out.
    heldout_best: float | None = None
    heldout_median: float | None = None

    def as_json(self) -> dict[str, Any]:
        """The fields, without those of a held-out set where there is none."""
        found = {k: round(v, 6) if isinstance(v, float) else v for k, v in vars(self).items()}
        return {k: v for k, v in found.items() if v is not None or not k.startswith(HELDOUT)}


def read_tables(results: Path) -> dict[str, list[Record]]:
    """The records of each table of the paper, by name, in the order of the paper.

    Files named after nothing in the paper are none of ours. Where a run was recorded twice, the
    first record counts: it is the one that later commands took for done.
    """
    found: dict[str, dict[str, Record]] = defaultdict(dict)
    for path in sorted(results.glob("*.jsonl")):
        if base_name(path.stem) in TABLES:
            for record in files.read(path, _check_run):
                found[record["table"]].setdefault(record["run"], record)
    for name, records in found.items():
        check_settings(name, (record["config"] for record in records.values()))
        _check_epochs(results / f"{name}.jsonl", records.values())
    return {name: list(found[name].values()) for name in sorted(found, key=_place)}


def check_settings(table: str, configs: Iterable[dict[str, Any]]) -> None:
    """Refuse runs of one cell that differ in more than their seeds: their spread means nothing."""
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for config in configs:
        other = first.setdefault((config["loss"], config["scenario"]), config)
        here, there = _settings(config), _settings(other)
        if here != there:
            changed = sorted(k for k in here.keys() | there.keys() if here.get(k) != there.get(k))
            values = [f"{k} ({there.get(k)} and {here.get(k)})" for k in changed[:3]]
            raise ValueError(
                f"{table}: runs of {config['loss']} in scenario {config['scenario']} differ in "
                f"{', '.join(values)}; move the old records away or use another folder for the new"
            )


def cells(table: PaperTable, records: Sequence[Record]) -> list[Cell]:
    """Every cell that has runs, losses and scenarios in the order of the paper."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[record["loss"], record["scenario"]].append(record)
    order = sorted(groups, key=lambda at: (_index(LOSSES, at[0]), *_column(table, at[1])))
    return [_cell(table, *at, groups[at]) for at in order]


def scenarios(table: PaperTable, records: Sequence[Record]) -> list[str]:
    """The scenarios that have runs, in the order of the paper."""
    return sorted({record["scenario"] for record in records}, key=lambda s: _column(table, s))


def losses(records: Sequence[Record]) -> list[str]:
    """The losses that have runs, in the order of the paper."""
    return sorted({record["loss"] for record in records}, key=lambda loss: _index(LOSSES, loss))


def best_runs(table: PaperTable, records: Sequence[Record]) -> set[str]:
    """The run with the best number of each cell; of several, the one with the smallest seed."""
    best: dict[tuple[str, str], str] = {}
    sign = -1 if table.better == "higher" else 1
    by_value = sorted(records, key=lambda r: (sign * number(table, r), r["seed"]))
    for record in by_value:
        best.setdefault((record["loss"], record["scenario"]), record["run"])
    return set(best.values())


def number(table: PaperTable, record: Record) -> float:
    """What a run has to show beside the number of the paper."""
    if table.metric not in record["metrics"]:
        raise ValueError(
            f"{record['table']}: run {record['run']} has no {table.metric} among its metrics, "
            f"{', '.join(record['metrics'])}"
        )
    return float(record["metrics"][table.metric])


def seconds(records: Sequence[Record]) -> float:
    """What it took to train them: those trained together share the time."""
    return sum(float(record["seconds"]) / record["members"] for record in records)


def remarks(paper: PaperTable, records: Sequence[Record]) -> list[str]:
    """What must be said beside the numbers of a table, a sentence or two each."""
    found = [paper.other_scale, said_of_temperature(paper, records)]
    return [said for said in (*found, said_of_recombination(paper, records)) if said]


def said_of_temperature(paper: PaperTable, records: Sequence[Record]) -> str:
    """Where the set cross entropy began at another temperature than the paper's, what it was."""
    of_sh = [record for record in records if record["loss"] == "SH"]
    soft = [record for record in of_sh if _scheduled(record, "softness", 1.0) != 1.0]
    if not soft:
        return ""
    began = sorted({_scheduled(record, "softness", 1.0) for record in soft})
    hot = " or ".join(f"{temperature:g}" for temperature in began)
    where = _where(paper, soft, of_sh)
    said = f"The temperature of SH falls in training, from {hot} to the paper's 1{where}."
    others = any(record["loss"] != "SH" for record in records)
    return f"{said} The other losses have none." if others else said


def said_of_recombination(paper: PaperTable, records: Sequence[Record]) -> str:
    """Whether networks saw sets that are none of those to train on; see `experiments.recombine`."""
    recombined = [record for record in records if _scheduled(record, "recombined", 0.0)]
    if not recombined:
        return ""
    where = _where(paper, recombined, records)
    return (
        f"Networks were trained on recombined sets{where}; the paper recombines nothing. That was "
        f"chosen by how well states come back that were not trained on, and the problems are about "
        f"such states too (docs/planning.md, Recombined sets)."
    )


def _scheduled(record: Record, name: str, default: float) -> float:
    """What a run's schedule says; older records do not have every field."""
    value: float = record["config"].get("schedule", {}).get(name, default)
    return value


def _where(paper: PaperTable, some: Sequence[Record], every: Sequence[Record]) -> str:
    """In brackets, the scenarios that some of the records are of, unless those are all there are.

    Where they are all of a task, as a label begins, the task is enough.
    """
    chosen, rest = scenarios(paper, some), set(scenarios(paper, every))
    rest -= set(chosen)
    if not rest:
        return ""
    others = {_task(paper, scenario) for scenario in rest}
    names = [
        paper.label(scenario) if _task(paper, scenario) in others else _task(paper, scenario)
        for scenario in chosen
    ]
    return f" ({'; '.join(dict.fromkeys(names))} only)"


def _task(paper: PaperTable, scenario: str) -> str:
    return paper.label(scenario).partition(",")[0]


def read_costs(results: Path, table: str) -> list[Record]:
    """What was measured of training one network of a table alone; see `experiments.cost`."""
    costs = files.read(results / store.COSTS, _check_cost)
    return [cost for cost in costs if cost["table"] == table]


def said_of_costs(costs: Sequence[Record]) -> str:
    """How much faster networks were trained together than one after the other would have been."""
    together = sum(cost["seconds"] for cost in costs)
    apart = {
        way: sum(cost["networks"] * cost["seconds_alone"][way] for cost in costs)
        for way in ("plain", "compiled")
    }
    networks = sum(cost["networks"] for cost in costs)
    return (
        f"{networks} networks together took {together:.0f} s, compiling included. As measured on "
        f"one of them in the same run, the same code would take {apart['compiled']:.0f} s for one "
        f"after the other, {apart['compiled'] / together:.1f} times as long, and "
        f"{apart['plain']:.0f} s with its steps neither compiled nor replayed."
    )


def _check_planning(record: Record) -> None:
    require(record["config"], {"trained": dict, "planning": dict})
    require(record, {"problems": list})
    for problem in record["problems"]:
        require(problem, {"failure": TEXT_OR_NOTHING})


def _check_run(record: Any) -> None:
    require(record, _RUN)
    require(record["environment"], _ENVIRONMENT)
    require(record["config"], _CONFIG)
    if record["members"] < 1:
        raise ValueError(f"members: expected one or more, got {record['members']}")
    paper = paper_table(record["table"])
    if paper.counts_plans:
        _check_planning(record)
    metric, metrics = paper.metric, record["metrics"]
    require(metrics, dict.fromkeys([metric, *({HELDOUT} & metrics.keys())], NUMBER))
    history = record["history"]
    require(history, dict.fromkeys(history, list))
    # What was not measured while training is empty.
    lengths = {name: len(column) for name, column in history.items() if column}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"history: expected columns of one length, got {told}")
    for name, column in history.items():
        wrong = [v for v in column if not (v is None or isinstance(v, NUMBER))]
        if wrong:
            raise ValueError(f"history: expected numbers, got {wrong[0]!r} in {name}")
    try:
        _settings(record["config"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"config: {error}") from error


def _check_epochs(path: Path, records: Iterable[Record]) -> None:
    """Runs of a cell were measured at the same epochs, or they have no median on the way."""
    first: dict[tuple[str, str], Record] = {}
    for record in records:
        other = first.setdefault((record["loss"], record["scenario"]), record)
        if record["history"].get("epoch") != other["history"].get("epoch"):
            raise ValueError(
                f"{path}: the history of run {record['run']} has other epochs than that of run "
                f"{other['run']}, though both are of {record['loss']} in scenario "
                f"{record['scenario']}"
            )


def _check_cost(record: Any) -> None:
    require(record, _COST)
    require(record["seconds_alone"], {"plain": NUMBER, "compiled": NUMBER})
    if record["seconds"] <= 0:
        raise ValueError(f"seconds: expected more than none, got {record['seconds']}")


def _cell(table: PaperTable, loss: str, scenario: str, records: Sequence[Record]) -> Cell:
    values = table.best_first([number(table, record) for record in records])
    heldout = table.best_first(
        [float(r["metrics"][HELDOUT]) for r in records if HELDOUT in r["metrics"]]
    )
    return Cell(
        loss,
        scenario,
        table.value(loss, scenario),
        best=values[0],
        median=median(values),
        worst=values[-1],
        runs=len(values),
        heldout_best=heldout[0] if heldout else None,
        heldout_median=median(heldout) if heldout else None,
    )


def _settings(config: dict[str, Any]) -> dict[str, str]:
    """All of a config but the seed, one entry a leaf: {"schedule.epochs": "1500", ...}.

    Fields that came later than a record have their defaults in it; what a table records beside the
    config of a training is taken as it is.
    """
    flat: dict[str, Any] = {}
    known = {field.name for field in fields(Config)}
    filled = asdict(config_from({k: v for k, v in config.items() if k in known}))
    for name, value in (config | filled).items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": leaf for key, leaf in value.items()}
        elif name != "seed":
            flat[name] = value
    return {name: json.dumps(value) for name, value in flat.items()}


def _place(name: str) -> tuple[int, str]:
    return _index(list(TABLES), base_name(name)), name


def _column(table: PaperTable, scenario: str) -> tuple[int, str]:
    return _index(list(table.scenarios), scenario), scenario


def _index(order: Sequence[str], name: str) -> int:
    """Names that the paper does not have come last."""
    return list(order).index(name) if name in order else len(order)
