"""Pictures of recorded runs: how they learned, and where they ended beside the paper.

Both have one panel a scenario, and the colour of a loss is the same in all of them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from setwise.report import tables
from setwise.report.labels import apart
from setwise.report.paper import LOSS_NAMES, PaperTable, heading
from setwise.report.tables import HELDOUT, Record

COLOURS = {"H": "tab:gray", "SH": "crimson", "A1H": "tab:blue", "H1H": "tab:orange"}
STYLE: Any = {"font.size": 11, "axes.titlelocation": "left", "axes.titlesize": 10.5}
# Metrics that are shares: drawn from 0 to 1, whatever was reached.
RATES = ("success", HELDOUT)


def has_curves(paper: PaperTable, records: Sequence[Record]) -> bool:
    """Whether the table's number was measured while training."""
    return all(record["history"].get(paper.metric) for record in records)


def draw_curves(name: str, paper: PaperTable, records: Sequence[Record], path: Path) -> None:
    """The table's number over the epochs: every run thin, the median of the seeds thick."""
    measured = f" on {paper.curves_of}" if paper.curves_of else ""

    def panel(axes: Any, scenario: str, found: Sequence[Record]) -> None:
        ends: dict[str, float] = {}
        for loss in tables.losses(found):
            runs = [record["history"] for record in found if record["loss"] == loss]
            look = {"color": COLOURS[loss], "zorder": 3 if loss == "SH" else 2}
            for run in runs:
                axes.plot(run["epoch"], run[paper.metric], lw=0.7, alpha=0.45, **look)
            curves = [run[paper.metric] for run in runs]
            middle = [median(values) for values in zip(*curves, strict=True)]
            axes.plot(runs[0]["epoch"], middle, lw=2.6, **look)
            ends[loss] = middle[-1]
        axes.set_xlim(0, axes.dataLim.xmax)
        _label_ends(axes, ends, paper.our_decimals)
        axes.grid(alpha=0.3)

    _draw(
        f"{heading(name)}. How it was learned",
        f"epoch. Thin: one run{measured}, thick: the median of the runs, whose end is named.",
        paper.metric_name,
        paper,
        records,
        path,
        panel,
    )


def draw_cells(name: str, paper: PaperTable, records: Sequence[Record], path: Path) -> None:
    """Where every run ended, a dot each, beside the number of the paper."""
    with_heldout = paper.metric != HELDOUT and any(HELDOUT in r["metrics"] for r in records)
    present = tables.losses(records)

    def panel(axes: Any, scenario: str, found: Sequence[Record]) -> None:
        for row, loss in enumerate(present):
            runs = sorted((r for r in found if r["loss"] == loss), key=lambda r: r["seed"])
            look: Any = {"color": COLOURS[loss], "marker": "o", "ls": "", "clip_on": False}
            ends = [tables.number(paper, run) for run in runs]
            middle = row - 0.16 if with_heldout else row
            axes.plot(ends, _spread(middle, len(ends)), ms=5.5, mew=0, alpha=0.6, **look)
            if with_heldout:
                heldout = [run["metrics"][HELDOUT] for run in runs]
                axes.plot(heldout, _spread(row + 0.2, len(runs)), ms=4.5, mfc="none", **look)
            published = paper.value(loss, scenario)
            if published is not None:
                axes.vlines(published, row - 0.42, row + 0.42, color="black", lw=1.7, zorder=3)
        if paper.metric in RATES:
            axes.set_xlim(-0.04, 1.04)
        elif paper.better == "lower":
            axes.set_xlim(left=0)
            axes.locator_params(axis="x", nbins=4)  # the numbers at its ticks may be long
        axes.set_ylim(len(present) - 0.5, -0.5)
        axes.set_yticks(range(len(present)), present)
        for label, loss in zip(axes.get_yticklabels(), present, strict=True):
            label.set(color=COLOURS[loss], fontweight="bold")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", alpha=0.3)

    heldout = ", open: the same run on held-out examples" if with_heldout else ""
    _draw(
        f"{heading(name)}. Beside the paper",
        f"{paper.metric_name}.\nDot: one run{heldout}. Black bar: the paper's number.",
        "",
        paper,
        records,
        path,
        panel,
    )


def source(records: Sequence[Record]) -> str:
    """What a picture says of the records it was drawn from."""
    return hashlib.sha256(json.dumps(list(records), sort_keys=True).encode()).hexdigest()


def _draw(
    title: str,
    below: str,
    beside: str,
    paper: PaperTable,
    records: Sequence[Record],
    path: Path,
    panel: Callable[[Any, str, Sequence[Record]], None],
) -> None:
    """A panel for each scenario, in a grid; what stands around them; and the file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = tables.scenarios(paper, records)
    columns = min(len(names), 4)
    rows = math.ceil(len(names) / columns)
    size = max(8.0, 3.3 * columns), 1.3 + 2.7 * rows
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            rows, columns, figsize=size, layout="constrained", squeeze=False
        )
        figure.suptitle(title, fontweight="bold")
        losses = "; ".join(f"{loss}: {LOSS_NAMES[loss]}" for loss in tables.losses(records))
        figure.supxlabel(f"{below}\n{losses}.", fontsize=11)
        figure.supylabel(beside, fontsize=11)
        for axes, scenario in zip(grid.flat, names, strict=False):
            panel(axes, scenario, [r for r in records if r["scenario"] == scenario])
            axes.set_title(",\n".join(paper.label(scenario).rsplit(", ", 1)))
        for axes in grid.flat[len(names) :]:
            axes.set_visible(False)
        _save(figure, path, source(records))
        plt.close(figure)


def _save(figure: Any, path: Path, made_from: str) -> None:
    """As a PNG of few colours, a third of the size."""
    import numpy as np
    from PIL import Image, PngImagePlugin

    figure.set_dpi(100)
    figure.canvas.draw()
    image = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    facts = PngImagePlugin.PngInfo()
    facts.add_text("Source", made_from)
    path.parent.mkdir(parents=True, exist_ok=True)
    few = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True, pnginfo=facts)


def _spread(centre: float, count: int) -> list[float]:
    """Heights side by side, so that equal runs are seen as several."""
    step = min(0.05, 0.3 / max(count - 1, 1))
    return [centre + step * (i - (count - 1) / 2) for i in range(count)]


def _label_ends(axes: Any, ends: dict[str, float], decimals: int) -> None:
    """Name each curve where it ends; names that would cover each other move apart."""
    low, high = axes.get_ylim()
    heights = apart(sorted(ends.values()), 0.09 * (high - low), high)
    for height, (loss, end) in zip(heights, sorted(ends.items(), key=lambda e: e[1]), strict=True):
        axes.annotate(
            f"{loss} {end:.{decimals}f}",
            (1.0, height),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=COLOURS[loss],
            fontweight="bold",
            fontsize=9.5,
            annotation_clip=False,
        )
