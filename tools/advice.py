"""What the study of losses says to somebody who knows their data: tables for several documents.

A task is a scenario of ``studies/losses.py``, a kind of data some of its tasks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from scipy.stats import mannwhitneyu  # type: ignore[import-untyped]

from setwise.experiments import store
from setwise.report import tables
from setwise.report.records import HELDOUT
from setwise.report.tables import Cell, Record, Recorded
from tools.markdown import markdown, wrapped

NOTHING = "Nothing recorded yet.\n"
STUDY = "losses"
STEPS = Path("studies", "steps.jsonl")
BESIDE = "set_cross_entropy"  # which the others are measured by
LEVEL = 0.01  # within which medians are taken for level
BROKEN = 0.05
CHANCE = 0.05  # the probability above which a difference between runs is put down to chance
MOST_NAMED = 3
SPELLED = {  # the losses that are others, annealed
    "annealed_cross_entropy": "`set_cross_entropy`, annealed",
    "annealed_likelihood": "`set_likelihood`, annealed",
}
# What a reader knows of their sets, and the tasks that are like them.
KINDS = {
    "distinct elements of several features": ("puzzle",),
    "such elements, scored as categorical": ("puzzle-categorical",),
    "different sizes, with presence": (
        "missing-presence",
        "missing-prototypes",
        "multisets-presence",
    ),
    "different sizes, padded with dummies": (
        "missing-placed",
        "missing-counted",
        "multisets-dummies",
    ),
    "duplicates": ("bags",),
    "elements numbered within their class": ("numbering",),
    "sets from few examples": ("rules",),
    "all states of a small world, to plan in": ("lights",),
    "up to 8 elements of any bits": tuple(f"random-{n}x{d}" for n in (2, 8) for d in (2, 8, 32)),
    "32 elements of any bits": tuple(f"random-32x{d}" for d in (2, 8, 32)),
    "points": ("clouds",),
}
SIZES = (
    "missing-presence",
    "missing-prototypes",
    "missing-placed",
    "missing-counted",
    "multisets-presence",
    "multisets-dummies",
)


def score(cell: Cell) -> float:
    """What a loss is worth: the median on what was held out, or on all where nothing was."""
    return cell.median if cell.heldout_median is None else cell.heldout_median


def by_scenario(study: Recorded) -> dict[str, list[Cell]]:
    """The cells of each task that has some, in the order of the sheet."""
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in tables.cells(study.sheet, study.records):
        found[cell.scenario].append(cell)
    return {scenario: found[scenario] for scenario in study.sheet.scenarios if scenario in found}


def worth(study: Recorded, record: Record) -> float:
    """What one run is worth, by the same measure as `score`."""
    found: float | None = record["metrics"].get(HELDOUT)
    return tables.number(study.sheet, record) if found is None else found


def surely_behind(study: Recorded, scenario: str) -> set[str]:
    """The losses whose runs are worse than those of the best, and not by chance."""
    runs: dict[str, list[float]] = defaultdict(list)
    for record in study.records:
        if record["scenario"] == scenario:
            runs[record["loss"]].append(worth(study, record))
    best = max(runs, key=lambda loss: median(runs[loss]))
    return {
        loss
        for loss, own in runs.items()
        if median(own) < median(runs[best]) and differ(own, runs[best])
    }


def differ(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether the order of runs, by the test of Mann and Whitney, says that it is no chance."""
    return bool(mannwhitneyu(some, others).pvalue < CHANCE)


def read_steps(results: Path) -> list[dict[str, Any]]:
    """The milliseconds of a step by loss and task; none where they are not measured yet."""
    return store.read(results / STEPS) if (results / STEPS).exists() else []


def slowness(
    steps: Sequence[Mapping[str, Any]], over: Callable[[Sequence[float]], float] = median
) -> dict[str, float]:
    """What a step with a loss takes beside one with set cross entropy, by default in the median."""
    found = {(one["loss"], one["scenario"]): one["milliseconds"] for one in steps}
    beside: dict[str, list[float]] = defaultdict(list)
    for (loss, scenario), taken in found.items():
        if (BESIDE, scenario) in found:
            beside[loss].append(taken / found[BESIDE, scenario])
    return {loss: over(ratios) for loss, ratios in beside.items()}


def by_kind(study: Recorded | None, beside: Mapping[str, float]) -> str:
    """For each kind of data what to take, by the mean over its tasks, the fastest first.

    Losses that were not timed come last, the best first. As good may be what is surely behind the
    best in none of the tasks.
    """
    if study is None:
        return NOTHING
    lines, lacking = [], []
    for kind, scenarios in KINDS.items():
        means = _means(study, scenarios)
        if not means:
            lacking.append(kind)
            continue
        best = max(means.values())
        level = sorted(
            (loss for loss in means if means[loss] >= max(best - LEVEL, BROKEN)),
            key=lambda loss: (beside.get(loss, math.inf), -means[loss]),
        )
        others = sorted(
            (loss for loss in means if loss not in level and means[loss] >= BROKEN),
            key=lambda loss: -means[loss],
        )
        sure = set[str]().union(*(surely_behind(study, scenario) for scenario in scenarios))
        doubtful = [loss for loss in others if loss not in sure]
        behind = [loss for loss in others if loss in sure]
        broken = [loss for loss in means if means[loss] < BROKEN]
        say = _saying(study, means)
        every = len(study.sheet.losses)
        fewer = f" ({len(means)} of {every} losses)" if len(means) < every else ""
        named = (_listed(some, say) for some in (level, doubtful, behind))
        lines.append([kind + fewer, *named, str(len(broken))])
    titles = ["your sets", "take", "may be as good", "behind", f"losses below {BROKEN:.2f}"]
    if not lines:
        return NOTHING
    said = f"Not trained yet: {'; '.join(lacking)}."
    return table(titles, lines) + ("\n" + wrapped(said) if lacking else "")


def remedies(study: Recorded | None) -> str:
    """The tasks in which set cross entropy is behind, and what each of the others makes of them."""
    if study is None:
        return NOTHING
    behind = []
    for scenario, cells in by_scenario(study).items():
        found = {cell.loss: score(cell) for cell in cells}
        if BESIDE in found and found[BESIDE] < max(found.values()) - LEVEL:
            behind.append(scenario)
    return _cells_of(study, behind)


def sizes(study: Recorded | None) -> str:
    """Presence beside dummies, on the same sets."""
    return NOTHING if study is None else _cells_of(study, SIZES)


def table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"{line}\n" for line in markdown(titles, lines))


def shown(study: Recorded, cell: Cell | None, best: float) -> str:
    """The score of a cell, in bold if it is level with the best of its row."""
    if cell is None:
        return ""
    said = study.sheet.format(score(cell))
    return f"**{said}**" if score(cell) >= best - LEVEL and best >= BROKEN else said


def rows_of(study: Recorded, scenarios: Sequence[str]) -> list[list[str]]:
    """A line of scores for each of these tasks that is recorded."""
    lines = []
    for scenario, cells in by_scenario(study).items():
        if scenario in scenarios:
            found = {cell.loss: cell for cell in cells}
            best = max(map(score, cells))
            values = [shown(study, found.get(loss), best) for loss in study.sheet.losses]
            lines.append([study.sheet.label(scenario), *values])
    return lines


def symbols(study: Recorded) -> list[str]:
    return [style.symbol for style in study.sheet.losses.values()]


def _cells_of(study: Recorded, scenarios: Sequence[str]) -> str:
    lines = rows_of(study, scenarios)
    return table(["", *symbols(study)], lines) if lines else NOTHING


def _means(study: Recorded, scenarios: Sequence[str]) -> dict[str, float]:
    """Of the losses that are recorded in all these tasks the mean score."""
    found: dict[str, list[float]] = defaultdict(list)
    for cell in tables.cells(study.sheet, study.records):
        if cell.scenario in scenarios:
            found[cell.loss].append(score(cell))
    return {loss: fmean(own) for loss, own in found.items() if len(own) == len(scenarios)}


def _saying(study: Recorded, means: dict[str, float]) -> Callable[[str], str]:
    def say(loss: str) -> str:
        return f"{SPELLED.get(loss, f'`{loss}`')} {study.sheet.format(means[loss])}"

    return say


def _listed(losses: Sequence[str], say: Callable[[str], str]) -> str:
    return "; ".join(map(say, losses[:MOST_NAMED])) or "none"
