"""Write the numbers and the curves of docs/picture-losses.md from the records in results/.

    python -m tools.pictures

The records are those of ``studies/detection.py``; ``detection_rates.py`` and ``detection_times.py``
beside it write down which rates were tried and what a step takes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median

import matplotlib as mpl
from matplotlib import pyplot as plt

from setwise.experiments import store
from setwise.experiments.records import Record
from setwise.files import atomic_write_text
from setwise.report import tables
from setwise.report.curves import Curve, draw_curves, name_ends
from setwise.report.tables import Recorded
from tools.markdown import markdown, number, with_blocks, wrapped

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "picture-losses.md"
FIGURE = "picture-losses.png"
SHOWN = (
    "[![Average precision over steps and over seconds, a curve for each loss, for every decoder]"
    f"(figures/{FIGURE})](figures/{FIGURE})\n"
)
STUDY, RECIPES = "pictures", "picture-recipes"
STEPS, RATES = Path("studies", "picture-steps.jsonl"), Path("studies", "picture-rates.jsonl")
NOTHING = "Nothing recorded yet.\n"
LEVEL = 0.5  # the average precision that steps and seconds are counted to
NEAR = 0.01  # within which medians are taken for level
LEAST = 0.05  # below which nothing is best
# The numbers of a record, and the limits of the papers on CLEVR that they stand for.
LIMITS = {
    "heldout_ap": "any distance",
    "heldout_ap_1/3": "1",
    "heldout_ap_1/6": "0.5",
    "heldout_ap_1/12": "0.25",
    "heldout_ap_1/24": "0.125",
}

Key = tuple[str, str, str]  # an experiment, a scenario and a loss
Cells = dict[tuple[str, str], list[Record]]  # the runs of a scenario and a loss


def main() -> None:
    """Update the page and its figure."""
    atomic_write_text(PAGE, update(PAGE, ROOT / "results"))
    draw(ROOT / "results", PAGE.parent / "figures" / FIGURE)


def update(page: Path, results: Path) -> str:
    """The text of the page with all its blocks made anew from a folder of records."""
    found = tables.read_experiments(results)
    study, recipes = found.get(STUDY), found.get(RECIPES)
    times = step_times(results, study, recipes)
    blocks = {
        "pictures-recorded": recorded([study, recipes]),
        "pictures-rates": rates(results),
        "pictures-figure": SHOWN if study and study.records else NOTHING,
    }
    for name, experiment in (("pictures", study), ("recipes", recipes)):
        blocks |= {
            f"{name}-best": best(experiment, times) if experiment else NOTHING,
            f"{name}-end": end(experiment) if experiment else NOTHING,
            f"{name}-steps": effort(experiment) if experiment else NOTHING,
            f"{name}-seconds": effort(experiment, times) if experiment else NOTHING,
            f"{name}-limits": limits(experiment) if experiment else NOTHING,
        }
    return with_blocks(page.read_text(), page.name, blocks)


def step_times(results: Path, *studies: Recorded | None) -> dict[Key, float]:
    """Seconds of a step of one network among those that were timed together.

    Of cells that were not timed: what their training took, where no other loss was part of it.
    """
    return _of_trainings(filter(None, studies)) | {
        (one["experiment"], one["scenario"], one["loss"]): one["milliseconds"]
        / one["members"]
        / 1e3
        for one in store.read(results / STEPS)
    }


def _of_trainings(studies: Iterable[Recorded]) -> dict[Key, float]:
    found: dict[Key, float] = {}
    for study in studies:
        together: dict[str, set[str]] = defaultdict(set)
        for record in study.records:
            together[record["ensemble"]].add(record["loss"])
        for record in study.records:
            if len(together[record["ensemble"]]) == 1:
                own = record["seconds"] / record["members"] / curve(record)[-1][0]
                found[study.sheet.name, record["scenario"], record["loss"]] = own
    return found


def steps_per_epoch(record: Record) -> int:
    """How many batches an epoch has."""
    config = record["config"]
    return int(config["data"]["train"]) // int(config["schedule"]["batch"])


def curve(record: Record) -> list[tuple[float, float]]:
    """The average precision of held-out pictures over the steps; 0 where it has diverged."""
    each, history = steps_per_epoch(record), record["history"]
    points = [
        (epoch * each, value or 0.0)
        for epoch, value in zip(history["epoch"], history["heldout"], strict=True)
    ]
    return [(0.0, 0.0), *points]


def steps_to(record: Record, level: float = LEVEL) -> float:
    """The steps until the curve first meets a level, between two evaluations on the line."""
    for (before, low), (after, high) in pairwise(curve(record)):
        if high >= level:
            return before + (after - before) * (level - low) / (high - low)
    return math.inf


def value_of(record: Record, name: str = "heldout") -> float:
    """A number of a run; 0 where it has diverged."""
    return record["metrics"][name] or 0.0


def end(study: Recorded) -> str:
    """Where each loss ends: the median of the runs, and the least and the largest of them."""
    found = cells_of(study)
    lines = []
    for scenario in tables.scenarios(study.sheet, study.records):
        row = {loss: found[scenario, loss] for loss in losses_of(study, scenario)}
        top = max(_median(runs) for runs in row.values())
        shown = []
        for loss in study.sheet.losses:
            values = [value_of(run) for run in row.get(loss, [])]
            said = f"{median(values):.3f}" if values else ""
            if values and median(values) >= max(top - NEAR, LEAST):
                said = f"**{said}**"
            spread = f" ({min(values):.2f}-{max(values):.2f})" if values else ""
            shown.append(said + spread)
        lines.append([study.sheet.label(scenario), *shown])
    return _table(["", *_symbols(study)], lines)


def effort(study: Recorded, times: dict[Key, float] | None = None) -> str:
    """Steps to `LEVEL`, or with times of steps seconds: the median of the runs, bold the least.

    Where some runs did not get there, how many did. Cells that were not timed have no seconds.
    """
    if times is not None and not any(name == study.sheet.name for name, *_ in times):
        return NOTHING
    lines = []
    found = cells_of(study)
    for scenario in tables.scenarios(study.sheet, study.records):
        cells = {loss: found[scenario, loss] for loss in losses_of(study, scenario)}
        row = {loss: _effort(study, runs, times) for loss, runs in cells.items()}
        timed = (middle for middle in map(median, row.values()) if not math.isnan(middle))
        least = min(timed, default=math.inf)
        shown = []
        for loss in study.sheet.losses:
            shown.append(
                _reached(row[loss], least, seconds=times is not None) if loss in row else ""
            )
        lines.append([study.sheet.label(scenario), *shown])
    return _table(["", *_symbols(study)], lines)


def _effort(
    study: Recorded, runs: Sequence[Record], times: dict[Key, float] | None = None
) -> list[float]:
    key = study.sheet.name, runs[0]["scenario"], runs[0]["loss"]
    each = 1.0 if times is None else times.get(key, math.nan)
    return [steps_to(run) * each for run in runs]


def _reached(values: list[float], least: float, *, seconds: bool) -> str:
    there = sum(value < math.inf for value in values)
    middle = median(values)
    if math.isnan(middle):
        return ""
    if middle == math.inf:
        return f"never ({there} of {len(values)})" if there else "never"
    said = number(middle) if seconds else f"{middle:.0f}"
    if middle == least:
        said = f"**{said}**"
    return said if there == len(values) else f"{said} ({there} of {len(values)})"


def limits(study: Recorded) -> str:
    """The five limits of the papers: for each loss the scenario where it ends best."""
    found = cells_of(study)
    lines = []
    for loss, style in study.sheet.losses.items():
        own = {s: runs for (s, name), runs in found.items() if name == loss}
        if not own:
            continue
        scenario = max(own, key=lambda s: _median(own[s]))
        values = [median(value_of(run, name) for run in own[scenario]) for name in LIMITS]
        lines.append(
            [style.symbol, study.sheet.label(scenario), *(f"{100 * value:.1f}" for value in values)]
        )
    return _table(["", "with", *LIMITS.values()], lines)


def best(study: Recorded, times: dict[Key, float]) -> str:
    """For each scenario: what is best at equal steps, what at equal time, and what is fastest."""
    found = cells_of(study)
    lines = []
    for scenario in tables.scenarios(study.sheet, study.records):
        cells = {loss: found[scenario, loss] for loss in losses_of(study, scenario)}
        steps = {loss: _median(runs) for loss, runs in cells.items()}
        timed = _at_equal_time(study, scenario, cells, times)
        fast = {loss: median(_effort(study, runs)) for loss, runs in cells.items()}
        lines.append(
            [
                study.sheet.label(scenario),
                _leaders(study, steps),
                _leaders(study, timed),
                _first(study, fast),
            ]
        )
    titles = ["", "best at equal steps", "best at equal time", f"first at {LEVEL}"]
    return _table(titles, lines)


def _at_equal_time(
    study: Recorded, scenario: str, cells: dict[str, list[Record]], times: dict[Key, float]
) -> dict[str, float]:
    """The median of each loss at the time when the fastest of them has ended."""
    each = {loss: times.get((study.sheet.name, scenario, loss)) for loss in cells}
    whole = {
        loss: step * curve(cells[loss][0])[-1][0] for loss, step in each.items() if step is not None
    }
    if not whole:
        return {}
    budget = min(whole.values())
    return {
        loss: median(_at(curve(run), budget / (each[loss] or math.inf)) for run in cells[loss])
        for loss in whole
    }


def _at(points: Sequence[tuple[float, float]], step: float) -> float:
    """The height of a curve at a step, on the line between two evaluations."""
    for (before, low), (after, high) in pairwise(points):
        if step <= after:
            return low + (high - low) * (step - before) / (after - before)
    return points[-1][1]


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


def recorded(studies: Iterable[Recorded | None]) -> str:
    """How much there is, and where it was trained."""
    there = [study for study in studies if study is not None and study.records]
    if not there:
        return NOTHING
    runs = [record for study in there for record in study.records]
    where = sorted({record["environment"]["hardware"] for record in runs})
    steps = sorted({int(curve(record)[-1][0]) for record in runs})
    seeds = sorted({record["seed"] for record in runs})
    data = runs[0]["config"]["data"]
    every = sum(len(study.sheet.losses) * len(study.sheet.scenarios) for study in there)
    said = (
        f"{len(runs)} runs of {len(cells_in(there))} cells, of {every}; {len(seeds)} seeds, "
        f"{' or '.join(map(str, steps))} steps each, in {tables.seconds(runs):.0f} s of networks "
        f"trained together on {' and '.join(where)}; {data['train']} pictures to train on, "
        f"{data['pictures'] - data['train']} held out."
    )
    untrained = [
        study.sheet.label(scenario)
        for study in there
        for scenario in study.sheet.scenarios
        if not losses_of(study, scenario)
    ]
    if untrained:
        said += f" No runs yet: {'; '.join(untrained)}."
    return wrapped(said)


def cells_in(studies: Iterable[Recorded]) -> set[Key]:
    """All cells that have runs."""
    return {(s.sheet.name, r["scenario"], r["loss"]) for s in studies for r in s.records}


def draw(results: Path, path: Path) -> None:
    """Average precision over steps and over seconds, a column for each scenario of the study."""
    study = tables.read_experiments(results).get(STUDY)
    if study is None or not study.records:
        return
    times = step_times(results, study)
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


def _draw(axes: mpl.axes.Axes, curves: list[Curve], title: str, unit: str) -> None:
    draw_curves(axes, curves)
    axes.set(title=title, xlabel=unit, ylim=(0, 1))
    axes.grid(alpha=0.3)
    name_ends(axes, curves, 2, 0.085)


def _curves(study: Recorded, scenario: str, times: dict[Key, float] | None = None) -> list[Curve]:
    drawn = []
    for loss in losses_of(study, scenario):
        each = 1.0 if times is None else times.get((study.sheet.name, scenario, loss))
        if each is None:
            continue
        runs = [[(x * each, y) for x, y in curve(run)] for run in cells_of(study)[scenario, loss]]
        middle = [(same[0][0], median(y for _, y in same)) for same in zip(*runs, strict=True)]
        style = study.sheet.losses[loss]
        drawn.append(Curve(style.symbol, style.colour, middle, runs))
    return drawn


def cells_of(study: Recorded) -> Cells:
    """The runs of each scenario and loss."""
    found: Cells = defaultdict(list)
    for record in study.records:
        found[record["scenario"], record["loss"]].append(record)
    return found


def losses_of(study: Recorded, scenario: str) -> list[str]:
    """The losses that have runs in a scenario, in the order of the sheet."""
    there = {record["loss"] for record in study.records if record["scenario"] == scenario}
    return [loss for loss in study.sheet.losses if loss in there]


def _median(runs: Sequence[Record]) -> float:
    return median(map(value_of, runs))


def _leaders(study: Recorded, values: dict[str, float]) -> str:
    """Those that are level with the best, the best first."""
    top = max(values.values(), default=0.0)
    level = sorted((v, loss) for loss, v in values.items() if v >= max(top - NEAR, LEAST))
    said = (f"{study.sheet.losses[loss].symbol} {v:.2f}" for v, loss in reversed(level))
    return "; ".join(said) or ("none" if values else "")


def _first(study: Recorded, steps: dict[str, float]) -> str:
    loss = min(steps, key=lambda name: steps[name])
    if steps[loss] == math.inf:
        return "none"
    return f"{study.sheet.losses[loss].symbol}, {steps[loss]:.0f} steps"


def _symbols(study: Recorded) -> list[str]:
    return [style.symbol for style in study.sheet.losses.values()]


def _table(titles: list[str], lines: list[list[str]]) -> str:
    return "".join(f"{line}\n" for line in markdown(titles, lines))


if __name__ == "__main__":
    main()
