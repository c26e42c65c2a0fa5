"""What is said beside the numbers of an experiment: settings that differ from those of the
reference, what training together saved, and what became of problems without a valid plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report.tables import losses, scenarios

FAILURES = "Problems without a valid plan, of all networks together, by the class of their failure"


def remarks(sheet: Sheet, records: Sequence[Record]) -> list[str]:
    """What must be said, a sentence or two each."""
    found = [
        sheet.reference.other_scale if sheet.reference else "",
        said_of_temperature(sheet, records),
        said_of_recombination(sheet, records),
        sheet.remark,
    ]
    return [said for said in found if said]


def said_of_temperature(sheet: Sheet, records: Sequence[Record]) -> str:
    """Where losses began at another temperature than 1, which, and what it was."""
    tempered = [record for record in records if sheet.losses[record["loss"]].tempered]
    soft = [record for record in tempered if _scheduled(record, "loss_temperature", 1.0) != 1.0]
    if not soft:
        return ""
    began = sorted({_scheduled(record, "loss_temperature", 1.0) for record in soft})
    hot = " or ".join(f"{temperature:g}" for temperature in began)
    symbols = " and ".join(sheet.losses[loss].symbol for loss in losses(sheet, soft))
    where = _where(sheet, soft, tempered)
    said = f"The temperature of {symbols} falls in training, from {hot} to 1{where}."
    falling = set(losses(sheet, soft))
    steady = [loss for loss in losses(sheet, tempered) if loss not in falling]
    if steady:
        said += f" That of {' and '.join(sheet.losses[loss].symbol for loss in steady)} is 1."
    return said if len(tempered) == len(records) else f"{said} The other losses have none."


def said_of_recombination(sheet: Sheet, records: Sequence[Record]) -> str:
    """Whether networks saw sets that are none of those to train on; see `experiments.recombine`."""
    recombined = [record for record in records if _scheduled(record, "recombined", 0.0)]
    if not recombined:
        return ""
    return f"Networks were trained on recombined sets{_where(sheet, recombined, records)}."


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


def failures(sheet: Sheet, records: Sequence[Record]) -> dict[str, list[str]]:
    """For each scenario, by what it means, a cell for each loss; empty if nothing was planned.

    A cell has the commonest class of failure first; the classes are those of
    `setwise.planning.Failure`.
    """
    planned = [record for record in records if "problems" in record]
    return {
        sheet.label(scenario): [
            _failed([r for r in planned if (r["scenario"], r["loss"]) == (scenario, loss)])
            for loss in losses(sheet, planned)
        ]
        for scenario in scenarios(sheet, planned)
    }


def _failed(records: Sequence[Record]) -> str:
    """
    >>> problems = [{"failure": None}, {"failure": "no plan"}]
    >>> _failed([{"problems": problems}, {"problems": problems}])
    '2 of 4: no plan 2'
    """
    problems = [problem for record in records for problem in record["problems"]]
    if not problems:
        return ""
    found = Counter(problem["failure"] for problem in problems if problem["failure"])
    if not found:
        return f"none of {len(problems)}"
    classes = ", ".join(f"{name} {count}" for name, count in found.most_common())
    return f"{found.total()} of {len(problems)}: {classes}"


def _scheduled(record: Record, name: str, default: float) -> float:
    """What a run's schedule says; not every experiment has every field."""
    value: float = record["config"].get("schedule", {}).get(name, default)
    return value


def _where(sheet: Sheet, some: Sequence[Record], every: Sequence[Record]) -> str:
    """In brackets, the scenarios that some of the records are of, unless those are all there are.

    Where they are all of a task, as a label begins, the task is enough.
    """
    chosen, rest = scenarios(sheet, some), set(scenarios(sheet, every))
    rest -= set(chosen)
    if not rest:
        return ""
    others = {_task(sheet, scenario) for scenario in rest}
    names = [
        sheet.label(scenario) if _task(sheet, scenario) in others else _task(sheet, scenario)
        for scenario in chosen
    ]
    return f" ({'; '.join(dict.fromkeys(names))} only)"


def _task(sheet: Sheet, scenario: str) -> str:
    return sheet.label(scenario).partition(",")[0]
