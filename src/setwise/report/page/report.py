"""The report: everything that is recorded, on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from setwise.files import write_text
from setwise.report import tables
from setwise.report.page.benchmarks import benchmarks_section
from setwise.report.page.cells import said_of, verdicts
from setwise.report.page.pieces import (
    EMPTY,
    Html,
    Section,
    command,
    element,
    joined,
    page,
    paragraph,
    table,
)
from setwise.report.page.plans import plans_section
from setwise.report.page.reconstructions import reconstructions
from setwise.report.page.table_section import table_section
from setwise.report.paper import LOSS_NAMES, TABLES
from setwise.report.tables import Record

TITLE = "Set Cross Entropy: the paper and this library"
INTRODUCTION = (
    "A network whose output is a set must not be blamed for the order in which the elements come. "
    "Set Cross Entropy (Asai, 2018) is a loss that does not. Here stands every table of that "
    "paper beside what the library setwise came to, run by run."
)
READING = (
    "The paper reports the best of 10 runs. Beside it stand, in large print, our best run, then "
    "the median and the worst; they differ in their seeds alone. The small line shows every run "
    "as a dot and the paper as a bar. What was held out from training is given by its best and "
    "its median. A cell holds if our best, to as many decimals as the paper prints, is not behind "
    "the paper. Where the paper has a rate of zero there is nothing to reach: the loss fails in "
    "both, or our best is above that zero."
)


def write(output: Path, results: Path, benchmarks: Path) -> None:
    """Make the page from a folder of results and one of benchmark records; it appears whole."""
    write_text(output, report(results, benchmarks))


def report(results: Path, benchmarks: Path) -> str:
    """The text of the page."""
    found = tables.read_tables(results)
    costs = {name: tables.read_costs(results, name) for name in (*TABLES, *found)}
    after = {"table3": reconstructions(results)}
    sections = [
        Section("overview", "At a glance", _overview(found)),
        *(table_section(name, found, costs, after.get(name, EMPTY)) for name in TABLES),
        plans_section(results),
        benchmarks_section(benchmarks),
        Section("this-page", "This page", _about()),
    ]
    return page(TITLE, INTRODUCTION, sections)


def _overview(found: Mapping[str, Sequence[Record]]) -> Html:
    rows = []
    for name, paper in TABLES.items():
        records = found.get(name, ())
        said = said_of(verdicts(paper, records)) if records else "not recorded yet"
        link = element("a", f"Table {paper.number}", href=f"#{name}")
        rows.append([link, paper.title, str(len(records)), said])
    losses = "; ".join(f"{loss}, {name}" for loss, name in LOSS_NAMES.items())
    return joined(
        [
            table("The tables of the paper", ["", "what", "runs", "cells"], rows, cards=True),
            paragraph(READING),
            paragraph(f"The losses: {losses}."),
        ]
    )


def _about() -> Html:
    said = "It was made from the records in the repository, needs nothing else, and is remade by"
    return joined([paragraph(said), command("setwise report")])
