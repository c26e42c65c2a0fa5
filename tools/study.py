"""Write what the studies in results/ say: docs/which-loss.md, and tables of two other documents.

    python -m tools.study

The studies are trained by ``setwise train`` with ``studies/losses.py``, ``studies/points.py`` and
``studies/likelihood.py``, and the first is timed by ``studies/step_times.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from setwise.experiments import store
from setwise.files import atomic_write_text
from setwise.losses.table import find_loss
from setwise.report import tables
from setwise.report.tables import Cell, Recorded
from tools import advice, failures
from tools.advice import BROKEN, LEVEL, MOST_NAMED, NOTHING, STUDY, score
from tools.failures import ANNEALED, PLAIN
from tools.markdown import number, ratio, with_blocks, wrapped

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "which-loss.md"
# Other pages, and the block that each has of the study.
ADVICE = {
    ROOT / "docs" / "choosing-a-loss.md": {
        "study-kinds": advice.by_kind,
        "study-remedies": lambda study, _: advice.remedies(study),
    },
    ROOT / "docs" / "variable-sizes.md": {"study-sizes": lambda study, _: advice.sizes(study)},
}
POINTS, FULL_LENGTH = "points", "likelihood"
LIGHTS = Path("studies", "lights.jsonl")
SOLVED = 0.95
# A rule that asks for nothing but the size of sets, and the tasks in which they are large.
RULE = "LH, annealed for sets of up to 12"
LARGE = ("random-32x2", "random-32x8", "random-32x32", "clouds")


def main() -> None:
    """Update all of them."""
    results = ROOT / "results"
    atomic_write_text(PAGE, update(PAGE, results))
    for page in ADVICE:
        atomic_write_text(page, update_advice(page, results))


@cache
def read(results: Path) -> dict[str, Recorded]:
    """The experiments of a folder, read once for all pages: there are thousands of runs."""
    return tables.read_experiments(results)


def update(page: Path, results: Path) -> str:
    """The text of the page with all its blocks made anew from a folder of records."""
    found = read(results)
    study, points, full = (found.get(name) for name in (STUDY, POINTS, FULL_LENGTH))
    steps = advice.read_steps(results)
    beside = advice.slowness(steps)
    blocks = {
        "study-rows": rows(study, beside) if study else NOTHING,
        "study-medians": medians(study) if study else NOTHING,
        "study-losses": losses(study, steps) if study else NOTHING,
        "study-failures": failures.failures(study) if study else NOTHING,
        "study-annealing": failures.annealing(study) if study else NOTHING,
        "study-steps": step_times(study, steps) if study and steps else NOTHING,
    }
    blocks["study-points"] = medians(points) + _recorded(points) if points else NOTHING
    blocks["full-length"] = full_length(full) if full else NOTHING
    blocks["lights"] = lights(results / LIGHTS)
    return with_blocks(page.read_text(), page.name, blocks)


def update_advice(page: Path, results: Path) -> str:
    """The same of a page of `ADVICE`."""
    study = read(results).get(STUDY)
    beside = advice.slowness(advice.read_steps(results))
    blocks = {name: block(study, beside) for name, block in ADVICE[page].items()}
    return with_blocks(page.read_text(), page.name, blocks)


def rows(study: Recorded, beside: Mapping[str, float]) -> str:
    """For each task the losses that are level with the best, the fastest first.

    Those that were not timed come last, the best first.
    """
    lines = []
    for scenario, cells in advice.by_scenario(study).items():
        best = max(map(score, cells))
        level = [cell for cell in cells if score(cell) >= best - LEVEL]
        level.sort(key=lambda cell: (beside.get(cell.loss, math.inf), -score(cell)))
        sure = advice.surely_behind(study, scenario)
        others = sorted((c for c in cells if c not in level), key=lambda c: -score(c))
        lines.append(
            [
                study.sheet.label(scenario),
                _named(study, level),
                _named(study, [cell for cell in others if cell.loss not in sure]),
                _named(study, [cell for cell in others if cell.loss in sure][:MOST_NAMED]),
                _symbols(study, [cell for cell in cells if score(cell) < BROKEN]),
            ]
        )
    titles = ["your data", "take", "may be as good", "behind", f"below {BROKEN:.2f}"]
    return advice.table(titles, lines) + _recorded(study)


def medians(study: Recorded) -> str:
    """All cells: the median of the runs, the best of a row in bold."""
    lines = advice.rows_of(study, list(study.sheet.scenarios))
    return advice.table(["", *advice.symbols(study)], lines)


def losses(study: Recorded, steps: Sequence[Mapping[str, Any]]) -> str:
    """Of each loss: the tasks it solves, those it never does, where it is worst, what it takes.

    The last only where some were timed. The first line is of a rule that takes one of two losses.
    """
    typical, most = advice.slowness(steps), advice.slowness(steps, over=max)
    found = {
        scenario: {cell.loss: cell for cell in cells}
        for scenario, cells in advice.by_scenario(study).items()
    }
    best = {scenario: max(map(score, cells.values())) for scenario, cells in found.items()}
    by_size = {name: PLAIN if name in LARGE else ANNEALED for name in found}
    choices = {RULE: by_size} | {
        f"{style.symbol}: {style.label}": dict.fromkeys(found, loss)
        for loss, style in study.sheet.losses.items()
    }
    lines = []
    for name, choice in choices.items():
        own = [cells[choice[task]] for task, cells in found.items() if choice[task] in cells]
        if not own:
            continue
        behind = {cell: best[cell.scenario] - score(cell) for cell in own}
        worst = max(own, key=lambda cell: behind[cell])
        timed = {*choice.values()} & typical.keys()
        taken = [max(times[loss] for loss in timed) for times in (typical, most) if timed]
        lines.append(
            [
                name,
                f"{sum(score(cell) >= SOLVED for cell in own)} of {len(own)}",
                str(sum(score(cell) < BROKEN for cell in own)),
                study.sheet.format(fmean(behind.values())),
                _behind(study, worst, best[worst.scenario]),
                *([", at most ".join(dict.fromkeys(map(ratio, taken)))] if steps else []),
            ]
        )
    titles = [
        "",
        f"tasks with a median of {SOLVED} or more",
        f"below {BROKEN}",
        "behind the best, on average",
        "furthest behind the best",
        *(["time beside SH"] if steps else []),
    ]
    return advice.table(titles, lines)


def step_times(study: Recorded, steps: Sequence[Mapping[str, Any]]) -> str:
    """Milliseconds of a step of training, by loss and task."""
    found = {(one["loss"], one["scenario"]): one["milliseconds"] for one in steps}
    scenarios = list(dict.fromkeys(one["scenario"] for one in steps))
    lines = [
        [style.symbol, *(number(found.get((loss, scenario))) for scenario in scenarios)]
        for loss, style in study.sheet.losses.items()
    ]
    where = sorted({one["environment"]["hardware"] for one in steps})
    said = f"Milliseconds of a step of {steps[0]['networks']} networks on {' and '.join(where)}."
    return advice.table(["", *map(study.sheet.label, scenarios)], lines) + "\n" + wrapped(said)


def full_length(study: Recorded) -> str:
    """Best, median and worst of all runs, and of what was held out the median."""
    lines = []
    for scenario, cells in advice.by_scenario(study).items():
        found = {cell.loss: cell for cell in cells}
        shown = [_in_full(study, found.get(loss)) for loss in study.sheet.losses]
        lines.append([study.sheet.label(scenario), *shown])
    return advice.table(["", *advice.symbols(study)], lines) + _recorded(study)


def lights(path: Path) -> str:
    """Of how many problems each network had a valid plan."""
    if not path.exists():
        return NOTHING
    lines = [
        [
            find_loss(one["loss"]).symbol,
            str(one["seed"]),
            f"{one['restored']} of {one['states']}",
            f"{one['solved']} of {one['problems']}",
        ]
        for one in store.read(path)
    ]
    return advice.table(["", "seed", "states that come back", "problems with a valid plan"], lines)


def _in_full(study: Recorded, cell: Cell | None) -> str:
    if cell is None:
        return ""
    values = map(study.sheet.format, (cell.best, cell.median, cell.worst))
    heldout = (
        ""
        if cell.heldout_median is None
        else f", held out {study.sheet.format(cell.heldout_median)}"
    )
    return f"{' / '.join(values)} ({cell.runs}){heldout}"


def _behind(study: Recorded, cell: Cell, best: float) -> str:
    if score(cell) >= best - LEVEL:
        return "nowhere"
    own, other = map(study.sheet.format, (score(cell), best))
    return f"{study.sheet.label(cell.scenario)}: {own}, not {other}"


def _named(study: Recorded, cells: list[Cell]) -> str:
    said = [
        f"{study.sheet.losses[cell.loss].symbol} {study.sheet.format(score(cell))}"
        for cell in cells
        if score(cell) >= BROKEN
    ]
    return "; ".join(said) or "none"


def _symbols(study: Recorded, cells: list[Cell]) -> str:
    return "; ".join(study.sheet.losses[cell.loss].symbol for cell in cells) or "none"


def _recorded(study: Recorded) -> str:
    """How much of the study there is, and where it was trained."""
    there = len(tables.cells(study.sheet, study.records))
    every = len(study.sheet.losses) * len(study.sheet.scenarios)
    where = sorted({record["environment"]["hardware"] for record in study.records})
    seconds = tables.seconds(study.records)
    cells = f"{there} of {every} cells are trained so far" if there < every else f"{every} cells"
    said = f"{cells}, {len(study.records)} runs in {seconds:.0f} s on {' and '.join(where)}."
    untrained = set(study.sheet.scenarios) - advice.by_scenario(study).keys()
    if untrained:
        labels = [study.sheet.label(name) for name in study.sheet.scenarios if name in untrained]
        said += f" No runs yet: {'; '.join(labels)}."
    return "\n" + wrapped(said)


if __name__ == "__main__":
    main()
