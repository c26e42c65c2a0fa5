"""What became of planning problems without a valid plan, counted over all networks of a cell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from setwise.report import tables
from setwise.report.paper import PaperTable
from setwise.report.tables import Record

CAPTION = "Problems without a valid plan, of all networks together, by the class of their failure"


def failures(paper: PaperTable, records: Sequence[Record]) -> dict[str, list[str]]:
    """For each scenario, by what it says, a cell for each loss; empty if nothing was planned.

    A cell has the commonest class of failure first; the classes are those of
    `setwise.planning.Failure`.
    """
    if not paper.counts_plans:
        return {}
    return {
        paper.label(scenario): [
            _said([r for r in records if (r["scenario"], r["loss"]) == (scenario, loss)])
            for loss in tables.losses(records)
        ]
        for scenario in tables.scenarios(paper, records)
    }


def _said(records: Sequence[Record]) -> str:
    """
    >>> problems = [{"failure": None}, {"failure": "no plan"}]
    >>> _said([{"problems": problems}, {"problems": problems}])
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
