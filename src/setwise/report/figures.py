"""Pictures of an experiment: how its runs learned, and where they ended.

Both have one panel a scenario, and the colour of a loss is that of the experiment's sheet.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.curves import are_shares, draw_curves, has_curves, learning_curves, name_ends
from setwise.report.records import HELDOUT

Draw = Callable[[Sheet, Sequence[Record], Path], None]
# Names and labels are anybody's: none of them is a formula.
STYLE: Any = {
    **{"font.size": 11, "axes.titlelocation": "left", "axes.titlesize": 10.5},
    "text.parse_math": False,
}


def pictures(sheet: Sheet, records: Sequence[Record]) -> dict[str, tuple[str, Draw]]:
    """File names of the pictures of an experiment: what each shows, and what draws it."""
    beside = f" beside {sheet.reference.source}" if sheet.reference else ""
    found: dict[str, tuple[str, Draw]] = {
        f"{sheet.name}-cells.png": (f"Every run of {sheet.name}{beside}", draw_cells)
    }
    if has_curves(sheet, records):
        found[f"{sheet.name}-curves.png"] = f"How {sheet.name} was learned", draw_learning
    return found


def draw(sheet: Sheet, records: Sequence[Record], folder: Path) -> None:
    """Draw all pictures of an experiment into a folder."""
    for picture, (_, draw_picture) in pictures(sheet, records).items():
        draw_picture(sheet, records, folder / picture)


def draw_learning(sheet: Sheet, records: Sequence[Record], path: Path) -> None:
    """What is compared over the epochs: every run thin, the median of the seeds thick."""
    measured = f" on {sheet.curves_of}" if sheet.curves_of else ""

    def panel(axes: Any, scenario: str, found: Sequence[Record]) -> None:
        curves = learning_curves(sheet, found)
        draw_curves(axes, curves)
        axes.set_xlim(0, axes.dataLim.xmax)
        if are_shares(sheet, curves):
            axes.set_ylim(-0.04, 1.04)
        name_ends(axes, curves, sheet.decimals, gap=0.09)
        axes.grid(alpha=0.3)

    _draw(
        f"{sheet.title}. How it was learned",
        f"epoch. Thin: one run{measured}, thick: the median of the runs, whose end is named.",
        sheet.metric_label,
        sheet,
        records,
        path,
        panel,
    )


def draw_cells(sheet: Sheet, records: Sequence[Record], path: Path) -> None:
    """Where every run ended, a dot each, beside the published number if there is one."""
    with_heldout = sheet.metric != HELDOUT and any(HELDOUT in r["metrics"] for r in records)
    present = tables.losses(sheet, records)
    symbols = [sheet.losses[loss].symbol for loss in present]
    shares = tables.are_shares(sheet, (tables.number(sheet, record) for record in records))

    def panel(axes: Any, scenario: str, found: Sequence[Record]) -> None:
        for row, loss in enumerate(present):
            runs = sorted((r for r in found if r["loss"] == loss), key=lambda r: r["seed"])
            colour = sheet.losses[loss].colour
            look: Any = {"color": colour, "marker": "o", "ls": "", "clip_on": False}
            ends = [tables.number(sheet, run) for run in runs]
            middle = row - 0.16 if with_heldout else row
            axes.plot(ends, _spread(middle, len(ends)), ms=5.5, mew=0, alpha=0.6, **look)
            if with_heldout:
                known = [run["metrics"].get(HELDOUT) for run in runs]
                heldout = [math.nan if value is None else value for value in known]
                axes.plot(heldout, _spread(row + 0.2, len(runs)), ms=4.5, mfc="none", **look)
            published = sheet.published(loss, scenario)
            if published is not None:
                axes.vlines(published, row - 0.42, row + 0.42, color="black", lw=1.7, zorder=3)
        if shares:
            axes.set_xlim(-0.04, 1.04)
        elif sheet.better == "lower":
            axes.set_xlim(left=0)
            axes.locator_params(axis="x", nbins=4)  # the numbers at its ticks may be long
        axes.set_ylim(len(present) - 0.5, -0.5)
        axes.set_yticks(range(len(present)), symbols)
        for label, loss in zip(axes.get_yticklabels(), present, strict=True):
            label.set(color=sheet.losses[loss].colour, fontweight="bold")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", alpha=0.3)

    heldout = ", open: the same run on held-out examples" if with_heldout else ""
    source = sheet.reference.source if sheet.reference else ""
    bar = f" Black bar: the number of {source}." if source else ""
    _draw(
        f"{sheet.title}. {f'Beside {source}' if source else 'Every run'}",
        f"{sheet.metric_label}.\nDot: one run{heldout}.{bar}",
        "",
        sheet,
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
    sheet: Sheet,
    records: Sequence[Record],
    path: Path,
    panel: Callable[[Any, str, Sequence[Record]], None],
) -> None:
    """A panel for each scenario, in a grid; what stands around them; and the file."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = tables.scenarios(sheet, records)
    columns = min(len(names), 4)
    rows = math.ceil(len(names) / columns)
    size = max(8.0, 3.3 * columns), 1.3 + 2.7 * rows
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(
            rows, columns, figsize=size, layout="constrained", squeeze=False
        )
        figure.suptitle(title, fontweight="bold")
        styles = [sheet.losses[loss] for loss in tables.losses(sheet, records)]
        losses = "; ".join(f"{style.symbol}: {style.label}" for style in styles)
        figure.supxlabel(f"{below}\n{losses}.", fontsize=11)
        figure.supylabel(beside, fontsize=11)
        for axes, scenario in zip(grid.flat, names, strict=False):
            panel(axes, scenario, [r for r in records if r["scenario"] == scenario])
            axes.set_title(",\n".join(sheet.label(scenario).rsplit(", ", 1)))
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
