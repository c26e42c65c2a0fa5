"""Write the numbers and the curves of docs/picture-losses.md from the records in results/.

    python -m tools.pictures

The records are those of ``studies/detection.py`` and ``longer.py``; ``detection_rates.py`` and
``detection_times.py`` beside them write down which rates were tried and what a step takes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median

import matplotlib as mpl
from matplotlib import pyplot as plt

from setwise.experiments import store
from setwise.experiments.records import Record
from setwise.files import atomic_write_text
from setwise.report import effort, tables
from setwise.report.curves import Curve, draw_curves, name_ends
from setwise.report.effort import LEAST, NEAR, Times, cells_of, median_of
from setwise.report.step_times import said_of_times, step_times
from setwise.report.tables import Recorded
from tools.markdown import markdown, number, with_blocks, wrapped

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "picture-losses.md"
STUDY, RECIPES, LONGER = "pictures", "picture-recipes", "picture-longer"
FIGURES = {STUDY: "picture-losses.png", RECIPES: "picture-recipes.png"}
# The loss that the authors of a recipe train with.
OWN = {"detr": "detr_loss", "slot-attention": "huber_loss", "idspn": "huber_loss"}
RATES = Path("studies", "picture-rates.jsonl")
NOTHING = "Nothing recorded yet.\n"
Cell = tuple[str, list[Record]]  # a scenario, and the runs of one loss there
# The numbers of a record, and the limits of the papers on CLEVR that they stand for.
LIMITS = {
    "heldout_ap": "any distance",
    "heldout_ap_1/3": "1",
    "heldout_ap_1/6": "0.5",
    "heldout_ap_1/12": "0.25",
    "heldout_ap_1/24": "0.125",
}


def main() -> None:
    """Update the page and its figures."""
    atomic_write_text(PAGE, update(PAGE, ROOT / "results"))
    for name, figure in FIGURES.items():
        draw(ROOT / "results", name, PAGE.parent / "figures" / figure)


def update(page: Path, results: Path) -> str:
    """The text of the page with all its blocks made anew from a folder of records."""
    there = _recorded(results)
    more = there.pop(LONGER, None)
    times = step_times(results, there.values())
    blocks = {
        "pictures-recorded": recorded(there.values()),
        "pictures-rates": rates(results),
        "pictures-beside": beside(there.get(STUDY), there.get(RECIPES), times),
        "pictures-longer": longer(more, there.values()) if more else NOTHING,
    }
    # Of decoders there are too many to show each of them at all limits.
    for short, name, shown in (("pictures", STUDY, _best_cells), ("recipes", RECIPES, _cells)):
        study = there.get(name)
        blocks |= {
            f"{short}-best": best(study, times) if study else NOTHING,
            f"{short}-figure": _shown(study) if study else NOTHING,
            f"{short}-end": end(study) if study else NOTHING,
            f"{short}-steps": steps(study) if study else NOTHING,
            f"{short}-seconds": seconds(study, times, results) if study else NOTHING,
            f"{short}-limits": limits(study, shown(study)) if study else NOTHING,
        }
    return with_blocks(page.read_text(), page.name, blocks)


def _recorded(results: Path) -> dict[str, Recorded]:
    """The studies of the page that have runs."""
    found = tables.read_experiments(results)
    names = (STUDY, RECIPES, LONGER)
    return {name: found[name] for name in names if name in found and found[name].records}


def recorded(studies: Iterable[Recorded]) -> str:
    """How much there is, and where it was trained."""
    there = list(studies)
    if not there:
        return NOTHING
    runs = [record for study in there for record in study.records]
    where = sorted({record["environment"]["hardware"] for record in runs})
    lengths = sorted({int(effort.curve(s, r)[-1][0]) for s in there for r in s.records})
    seeds = sorted({record["seed"] for record in runs})
    data = runs[0]["config"]["data"]
    cells = {(s.sheet.name, r["scenario"], r["loss"]) for s in there for r in s.records}
    every = sum(len(study.sheet.losses) * len(study.sheet.scenarios) for study in there)
    said = (
        f"{len(runs)} runs of {len(cells)} cells, of {every}; {len(seeds)} seeds, "
        f"{' or '.join(map(str, lengths))} steps each, in {tables.seconds(runs):.0f} s of networks "
        f"trained together on {' and '.join(where)}; {data['train']} pictures to train on, "
        f"{data['pictures'] - data['train']} held out."
    )
    if missing := [told for study in there for told in _missing(study)]:
        said += f" No runs yet: {'; '.join(missing)}."
    return wrapped(said)


def _missing(study: Recorded) -> list[str]:
    """The scenarios without runs, and the losses that are missing in others."""
    found = []
    for scenario, label in study.sheet.scenarios.items():
        there = cells_of(study, scenario)
        lacking = [style.symbol for loss, style in study.sheet.losses.items() if loss not in there]
        if lacking:
            found.append(f"{label} ({'; '.join(lacking)})" if there else label)
    return found


def beside(study: Recorded | None, recipes: Recorded | None, times: Times) -> str:
    """Each of our losses with the decoder that it ends best with, beside the recipes' own.

    The best comes first.
    """
    cells = [(study, *cell) for cell in _best_cells(study)] if study else []
    for scenario, loss in OWN.items() if recipes else ():
        assert recipes is not None
        if runs := cells_of(recipes, scenario).get(loss):
            cells.append((recipes, scenario, runs))
    if not cells:
        return NOTHING
    cells.sort(key=lambda cell: -median_of(cell[0], cell[2]))
    lines = [_beside(*cell, times) for cell in cells]
    level = f"{effort.level_of(cells[0][0]):g}"
    titles = ["loss", "with", "at the end", f"steps to {level}", f"seconds to {level}"]
    return _table(titles, lines)


def _beside(study: Recorded, scenario: str, runs: Sequence[Record], times: Times) -> list[str]:
    own = Recorded(study.sheet, list(runs), [])
    found = (
        effort.reached(own, str, shown, some)
        for shown, some in (("{:.0f}".format, None), (number, times))
    )
    loss = runs[0]["loss"]
    place = 1 + list(study.sheet.losses).index(loss)
    said = [row[place] for [row] in found]
    label = study.sheet.label(scenario)
    label = f"the recipe of {label}" if study.sheet.name == RECIPES else label
    return [study.sheet.losses[loss].symbol, label, f"{median_of(study, runs):.3f}", *said]


def _cells(study: Recorded) -> list[Cell]:
    """Those with runs, in the order of the sheet."""
    return [
        (scenario, runs)
        for scenario in tables.scenarios(study.sheet, study.records)
        for runs in cells_of(study, scenario).values()
    ]


def _best_cells(study: Recorded) -> list[Cell]:
    """For each loss that of the scenario where it ends best."""
    own: dict[str, list[Cell]] = defaultdict(list)
    for cell in _cells(study):
        own[cell[1][0]["loss"]].append(cell)
    return [
        max(own[loss], key=lambda cell: median_of(study, cell[1]))
        for loss in tables.losses(study.sheet, study.records)
    ]


def longer(study: Recorded, studies: Iterable[Recorded]) -> str:
    """What the cells that were trained longer reach then, the best first, and before."""
    short = {
        (scenario, runs[0]["loss"]): f"{median_of(one, runs):.3f}"
        for one in studies
        for scenario, runs in _cells(one)
    }
    rows = []
    for scenario, runs in _cells(study):
        loss, value = runs[0]["loss"], median_of(study, runs)
        steps = effort.curve(study, runs[0])[-1][0]
        told = [study.sheet.losses[loss].symbol, study.sheet.label(scenario), f"{steps:.0f}"]
        found, before = _values(study, runs), short.get((scenario, loss), "")
        reached = f"{value:.3f} ({min(found):.2f}-{max(found):.2f})"
        rows.append((value, [*told, reached, before]))
    rows.sort(key=lambda row: -row[0])
    titles = ["loss", "with", "steps", "at the end", "with fewer steps"]
    table = _table(titles, [row for _, row in rows])
    missing = [label for name, label in study.sheet.scenarios.items() if not cells_of(study, name)]
    return f"{table}\nNo runs yet: {'; '.join(missing)}.\n" if missing else table


def best(study: Recorded, times: Times) -> str:
    """What is best at equal steps and at equal time, what is fastest, and how often each is."""
    table = _table(effort.best_titles(study), effort.best(study, times))
    said = effort.said_of_best(study, times)
    return f"{table}\n{wrapped(said)}" if said else table


def end(study: Recorded) -> str:
    """Where each loss ends: the median of the runs, and the least and the largest of them."""
    lines = []
    for scenario in tables.scenarios(study.sheet, study.records):
        row = cells_of(study, scenario)
        top = max(median_of(study, runs) for runs in row.values())
        shown = []
        for loss in study.sheet.losses:
            values = _values(study, row.get(loss, []))
            said = f"{median(values):.3f}" if values else ""
            if values and median(values) >= max(top - NEAR, LEAST):
                said = f"**{said}**"
            spread = f" ({min(values):.2f}-{max(values):.2f})" if values else ""
            shown.append(said + spread)
        lines.append([study.sheet.label(scenario), *shown])
    return _table(["", *_symbols(study)], lines)


def steps(study: Recorded) -> str:
    """Steps to the level."""
    return _table(["", *_symbols(study)], effort.reached(study, "**{}**".format, "{:.0f}".format))


def seconds(study: Recorded, times: Times, results: Path) -> str:
    """Where seconds come from, and those to the level where some are known."""
    said = wrapped(said_of_times(results, study, times))
    if not any(name == study.sheet.name for name, *_ in times):
        return said
    rows = effort.reached(study, "**{}**".format, number, times)
    return f"{said}\n{_table(['', *_symbols(study)], rows)}"


def limits(study: Recorded, cells: Iterable[Cell]) -> str:
    """Some of its cells at the five limits of the papers."""
    lines = []
    for scenario, runs in cells:
        values = [median(run["metrics"][name] or 0.0 for run in runs) for name in LIMITS]
        symbol = study.sheet.losses[runs[0]["loss"]].symbol
        shown = (f"{100 * value:.1f}" for value in values)
        lines.append([symbol, study.sheet.label(scenario), *shown])
    return _table(["", "with", *LIMITS.values()], lines)


def rates(results: Path) -> str:
    """The loss with each rate that was tried, the mean of its seeds; bold the least."""
    found: dict[str, dict[float, float]] = defaultdict(dict)
    for one in store.read(results / RATES):
        losses = [math.inf if loss is None else loss for loss in one["losses"]]
        found[one["name"]][one["rate"]] = fmean(losses)
    if not found:
        return NOTHING
    tried = sorted({rate for row in found.values() for rate in row})
    lines = []
    for name, row in found.items():
        top = min(row, key=lambda rate: row[rate])
        shown = [f"{row[rate]:.2f}" if rate in row else "" for rate in tried]
        lines.append(
            [name, *(f"**{t}**" if r == top else t for r, t in zip(tried, shown, strict=True))]
        )
    return _table(["", *(f"{rate:g}" for rate in tried)], lines)


def draw(results: Path, name: str, path: Path) -> None:
    """Average precision over steps and over seconds, two panels for each scenario of a study."""
    study = _recorded(results).get(name)
    if study is None:
        return
    times = step_times(results, [study])
    names = tables.scenarios(study.sheet, study.records)
    wide = min(len(names), 2)
    rows = math.ceil(len(names) / wide)
    with mpl.rc_context({"font.size": 8, "svg.hashsalt": "setwise"}):
        figure, axes = plt.subplots(
            rows, 2 * wide, figsize=(7 * wide, 2.6 * rows), squeeze=False, layout="constrained"
        )
        for place, scenario in enumerate(names):
            left, right = axes[place // wide, 2 * (place % wide) :][:2]
            label = study.sheet.label(scenario)
            _draw(left, _curves(study, scenario), label, "steps")
            _draw(right, _curves(study, scenario, times), label, "seconds of one network")
        for unused in axes.flat[2 * len(names) :]:
            unused.set_axis_off()
        figure.savefig(path, dpi=110, metadata={"Software": None})
        plt.close(figure)


def _shown(study: Recorded) -> str:
    figure = f"figures/{FIGURES[study.sheet.name]}"
    said = "Average precision over steps and over seconds, a curve for each loss, for every row"
    return f"[![{said}]({figure})]({figure})\n"


def _draw(axes: mpl.axes.Axes, curves: list[Curve], title: str, unit: str) -> None:
    axes.set(title=title, xlabel=unit, ylim=(0, 1))
    if not curves:
        axes.text(0.5, 0.5, "not timed", transform=axes.transAxes, ha="center")
        axes.set(xticks=[], yticks=[])
        return
    draw_curves(axes, curves)
    axes.grid(alpha=0.3)
    name_ends(axes, curves, 2, 0.085)


def _curves(study: Recorded, scenario: str, times: Times | None = None) -> list[Curve]:
    drawn = []
    for loss, runs in cells_of(study, scenario).items():
        each = 1.0 if times is None else times.get((study.sheet.name, scenario, loss))
        if each is None:
            continue
        thin = [[(x * each, y) for x, y in effort.curve(study, run)] for run in runs]
        middle = [(same[0][0], median(y for _, y in same)) for same in zip(*thin, strict=True)]
        style = study.sheet.losses[loss]
        drawn.append(Curve(style.symbol, style.colour, middle, thin))
    return drawn


def _values(study: Recorded, runs: Iterable[Record]) -> list[float]:
    return [effort.value_of(study, run) for run in runs]


def _symbols(study: Recorded) -> list[str]:
    return [style.symbol for style in study.sheet.losses.values()]


def _table(titles: list[str], lines: list[list[str]]) -> str:
    return "".join(f"{line}\n" for line in markdown(titles, lines))


if __name__ == "__main__":
    main()
