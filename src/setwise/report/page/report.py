"""The report: everything that is recorded, on one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from setwise.files import atomic_write_text
from setwise.report.page.benchmarks import benchmarks_section
from setwise.report.page.cells import MISSING, said_of_cells
from setwise.report.page.detections import detections_sections
from setwise.report.page.effort import effort_of
from setwise.report.page.experiment import anchor_of, experiment_section, short_title
from setwise.report.page.markup import piece
from setwise.report.page.pieces import (
    Markup,
    Section,
    command,
    joined,
    page,
    paragraph,
    table,
)
from setwise.report.page.plans import plans_section
from setwise.report.page.reconstructions import reconstructions
from setwise.report.tables import Recorded, read_all

TITLE = "Networks whose output is a set: what is recorded"
INTRODUCTION = (
    "A network whose output is a set must not be blamed for the order in which the elements come. "
    "Here stands every experiment of a folder of results, run by run: which losses it compares, "
    "what they came to, and where numbers are published, those beside ours."
)
READING = (
    "In large print stands the best run of a cell, then the median and the worst; they differ in "
    "their seeds alone. The small line shows every run as a dot. What was held out from training "
    "is given by its best and its median."
)
COMPARING = (
    "A published number is a bar on that line. A cell holds if our best, to as many decimals as "
    "were published, is not behind it. Where a rate of zero was published there is nothing to "
    "reach: the loss fails in both, or our best is above that zero."
)
NOTHING = "No experiment is recorded here yet. A small one, with four losses, is trained by"
EXAMPLE = "setwise reproduce table1 --preset quick"


def write(output: Path, results: Path, benchmarks: Path, also: Sequence[Path] = ()) -> None:
    """Make the page from a folder of results and one of benchmark records; it appears whole.

    ``also`` are further folders of experiments.
    """
    atomic_write_text(output, report(results, benchmarks, also))


def report(results: Path, benchmarks: Path, also: Sequence[Path] = ()) -> str:
    """The text of the page."""
    found = read_all([results, *also])
    sections = [
        Section("overview", "At a glance", _overview(found)),
        *(
            experiment_section(one, effort_of(results, one), reconstructions(results, one))
            for one in found.values()
        ),
        *detections_sections(results),
        plans_section(results),
        benchmarks_section(benchmarks),
        Section("this-page", "This page", _about()),
    ]
    return page(TITLE, INTRODUCTION, sections)


def _overview(found: Mapping[str, Recorded]) -> Markup:
    if not found:
        return command(EXAMPLE, NOTHING)
    rows = []
    for one in found.values():
        said = said_of_cells(one.sheet, one.records) if one.records else MISSING
        link = piece("link", short_title(one.sheet), anchor_of(one.sheet))
        what = one.sheet.title.partition(": ")[2] or one.sheet.metric_label
        rows.append([link, what, str(len(one.records)), said])
    parts = [table("The experiments", ["", "what", "runs", "cells"], rows, cards=True)]
    compared = any(one.sheet.reference for one in found.values())
    parts.append(paragraph(f"{READING} {COMPARING}" if compared else READING))
    styles = {style: None for one in found.values() for style in one.sheet.losses.values()}
    losses = "; ".join(f"{style.symbol}, {style.label}" for style in styles)
    return joined([*parts, paragraph(f"The losses: {losses}.")])


def _about() -> Markup:
    said = "It was made from records, needs nothing else, and is remade by"
    return command("setwise report", said)
