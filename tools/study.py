"""Write what the studies in results/ say: docs/which-loss.md, and tables of two other documents.

    python -m tools.study

The studies are trained by ``setwise train studies/losses.py`` and ``studies/likelihood.py``, and
timed by ``studies/step_times.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from setwise.experiments import store
from setwise.files import atomic_write_text
from setwise.losses.table import find_loss
from setwise.report import tables
from setwise.report.tables import Cell, Recorded
from tools import advice
from tools.advice import BROKEN, LEVEL, MOST_NAMED, NOTHING, STUDY, score
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
FULL_LENGTH = "likelihood"
LIGHTS = Path("studies", "lights.jsonl")
SOLVED = 0.95


def main() -> None:
    """Update all of them."""
    results = ROOT / "results"
    atomic_write_text(PAGE, update(PAGE, results))
    for page in ADVICE:
        atomic_write_text(page, update_advice(page, results))


def update(page: Path, results: Path) -> str:
    """The text of the page with all its blocks made anew from a folder of records."""
    found = tables.read_experiments(results)
    study, full = (found.get(name) for name in (STUDY, FULL_LENGTH))
    steps = advice.read_steps(results)
    beside = advice.slowness(steps)
    blocks = {
        "study-rows": rows(study, beside) if study else NOTHING,
        "study-medians": medians(study) if study else NOTHING,
        "study-losses": losses(study, beside) if study else NOTHING,
        "study-steps": step_times(study, steps) if study and steps else NOTHING,
    }
    blocks["full-length"] = full_length(full) if full else NOTHING
    blocks["lights"] = lights(results / LIGHTS)
    return with_blocks(page.read_text(), page.name, blocks)


def update_advice(page: Path, results: Path) -> str:
    """The same of a page of `ADVICE`."""
    study = tables.read_experiments(results).get(STUDY)
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
        others = sorted((c for c in cells if c not in level), key=lambda c: -score(c))
        lines.append(
            [
                study.sheet.label(scenario),
                _named(study, level),
                _named(study, others[:MOST_NAMED]),
                _symbols(study, [cell for cell in cells if score(cell) < BROKEN]),
            ]
        )
    return advice.table(["your data", "take", "behind", f"below {BROKEN:.2f}"], lines) + _recorded(
        study
    )


def medians(study: Recorded) -> str:
    """All cells: the median of the runs, the best of a row in bold."""
    lines = advice.rows_of(study, list(study.sheet.scenarios))
    return advice.table(["", *advice.symbols(study)], lines)


def losses(study: Recorded, beside: Mapping[str, float]) -> str:
    """Of each loss: the tasks it solves, those it never does, where it is worst, what it takes.

    The last only where some were timed.
    """
    by_scenario = advice.by_scenario(study)
    best = {scenario: max(map(score, cells)) for scenario, cells in by_scenario.items()}
    lines = []
    for loss, style in study.sheet.losses.items():
        own = [cell for cells in by_scenario.values() for cell in cells if cell.loss == loss]
        if not own:
            continue
        solved = sum(score(cell) >= SOLVED for cell in own)
        broken = sum(score(cell) < BROKEN for cell in own)
        worst = min(own, key=lambda cell: score(cell) - best[cell.scenario])
        lines.append(
            [
                f"{style.symbol}: {style.label}",
                f"{solved} of {len(own)}",
                str(broken),
                _behind(study, worst, best[worst.scenario]),
                *([ratio(beside[loss]) if loss in beside else ""] if beside else []),
            ]
        )
    titles = [
        "",
        f"tasks with a median of {SOLVED} or more",
        f"below {BROKEN}",
        "furthest behind the best",
        *(["time beside SH"] if beside else []),
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
    said = (
        f"{there} of {every} cells are trained so far, {len(study.records)} runs in "
        f"{seconds:.0f} s on {' and '.join(where)}."
    )
    untrained = set(study.sheet.scenarios) - advice.by_scenario(study).keys()
    if untrained:
        labels = [study.sheet.label(name) for name in study.sheet.scenarios if name in untrained]
        said += f" No runs yet: {'; '.join(labels)}."
    return "\n" + wrapped(said)


if __name__ == "__main__":
    main()
