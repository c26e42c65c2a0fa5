"""Write the numbers of docs/which-loss.md from the records of the studies in results/.

    python -m tools.study

The studies are trained by ``setwise train studies/losses.py`` and ``studies/likelihood.py``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from statistics import median

from setwise.experiments import store
from setwise.files import atomic_write_text
from setwise.losses.table import find_loss
from setwise.report import tables
from setwise.report.tables import Cell, Recorded
from tools.markdown import markdown, ratio, with_blocks, wrapped

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "which-loss.md"
NOTHING = "Nothing recorded yet.\n"
STUDY, FULL_LENGTH = "losses", "likelihood"
LIGHTS = Path("studies", "lights.jsonl")
BESIDE = "set_cross_entropy"  # whose time is the unit of the others
LEVEL = 0.01  # within which medians are taken for level
SOLVED, BROKEN = 0.95, 0.05
MOST_NAMED = 3


def main() -> None:
    """Update the page."""
    atomic_write_text(PAGE, update(PAGE, ROOT / "results"))


def update(page: Path, results: Path) -> str:
    """The text of the page with all its blocks made anew from a folder of records."""
    found = tables.read_experiments(results)
    study, full = (found.get(name) for name in (STUDY, FULL_LENGTH))
    of_study = {"rows": rows, "medians": medians, "losses": losses}
    blocks = {
        f"study-{name}": block(study) if study else NOTHING for name, block in of_study.items()
    }
    blocks["full-length"] = full_length(full) if full else NOTHING
    blocks["lights"] = lights(results / LIGHTS)
    return with_blocks(page.read_text(), page.name, blocks)


def score(cell: Cell) -> float:
    """What a loss is worth: the median on what was held out, or on all where nothing was."""
    return cell.median if cell.heldout_median is None else cell.heldout_median


def rows(study: Recorded) -> str:
    """For each task the losses that are level with the best, the fastest first."""
    times = _times(study)
    lines = []
    for scenario, cells in _by_scenario(study).items():
        best = max(map(score, cells))
        level = [cell for cell in cells if score(cell) >= best - LEVEL]
        level.sort(key=lambda cell: times.get((cell.loss, scenario), math.inf))
        others = sorted((c for c in cells if c not in level), key=lambda c: -score(c))
        lines.append(
            [
                study.sheet.label(scenario),
                _named(study, level),
                _named(study, others[:MOST_NAMED]),
                _symbols(study, [cell for cell in cells if score(cell) < BROKEN]),
            ]
        )
    return _table(["your data", "take", "behind", f"below {BROKEN:.2f}"], lines) + _recorded(study)


def medians(study: Recorded) -> str:
    """All cells: the median of the runs, the best of a row in bold."""
    symbols = [style.symbol for style in study.sheet.losses.values()]
    lines = []
    for scenario, cells in _by_scenario(study).items():
        found = {cell.loss: cell for cell in cells}
        best = max(map(score, cells))
        shown = [_median(study, found.get(loss), best) for loss in study.sheet.losses]
        lines.append([study.sheet.label(scenario), *shown])
    return _table(["", *symbols], lines)


def losses(study: Recorded) -> str:
    """Of each loss: how many tasks it solves, which it never does, and what a step takes."""
    cells = tables.cells(study.sheet, study.records)
    times = _times(study)
    lines = []
    for loss, style in study.sheet.losses.items():
        own = [cell for cell in cells if cell.loss == loss]
        if not own:
            continue
        solved = sum(score(cell) >= SOLVED for cell in own)
        broken = sum(score(cell) < BROKEN for cell in own)
        beside = [
            times[loss, cell.scenario] / times[BESIDE, cell.scenario]
            for cell in own
            if {(loss, cell.scenario), (BESIDE, cell.scenario)} <= times.keys()
        ]
        lines.append(
            [
                f"{style.symbol}: {style.label}",
                f"{solved} of {len(own)}",
                str(broken),
                ratio(median(beside)) if beside else "",
            ]
        )
    titles = ["", f"tasks with a median of {SOLVED} or more", f"below {BROKEN}", "time beside SH"]
    return _table(titles, lines)


def full_length(study: Recorded) -> str:
    """Best, median and worst of all runs, and of what was held out the median."""
    symbols = [style.symbol for style in study.sheet.losses.values()]
    lines = []
    for scenario, cells in _by_scenario(study).items():
        found = {cell.loss: cell for cell in cells}
        shown = [_in_full(study, found.get(loss)) for loss in study.sheet.losses]
        lines.append([study.sheet.label(scenario), *shown])
    return _table(["", *symbols], lines) + _recorded(study)


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
    return _table(["", "seed", "states that come back", "problems with a valid plan"], lines)


def _by_scenario(study: Recorded) -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = defaultdict(list)
    for cell in tables.cells(study.sheet, study.records):
        found[cell.scenario].append(cell)
    return {scenario: found[scenario] for scenario in study.sheet.scenarios if scenario in found}


def _times(study: Recorded) -> dict[tuple[str, str], float]:
    """Seconds of a network and an epoch, by loss and scenario; none of losses trained together."""
    together: dict[str, set[str]] = defaultdict(set)
    for record in study.records:
        together[record["ensemble"]].add(record["loss"])
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in study.records:
        if len(together[record["ensemble"]]) == 1:
            own = record["seconds"] / record["members"] / record["config"]["schedule"]["epochs"]
            found[record["loss"], record["scenario"]].append(own)
    return {cell: median(seconds) for cell, seconds in found.items()}


def _median(study: Recorded, cell: Cell | None, best: float) -> str:
    if cell is None:
        return ""
    said = study.sheet.format(score(cell))
    return f"**{said}**" if score(cell) >= best - LEVEL and best >= BROKEN else said


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
    return "\n" + wrapped(said)


def _table(titles: list[str], lines: list[list[str]]) -> str:
    return "".join(f"{line}\n" for line in markdown(titles, lines))


if __name__ == "__main__":
    main()
