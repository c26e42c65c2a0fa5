"""Curves that are named where they end, drawn alike in pictures and on pages.

Of an experiment they show how it was learned: every run thin, the median of the seeds thick.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import tables

Points = Sequence[tuple[float, float | None]]

# By the place among all curves of a drawing, for those who cannot tell colours apart.
_DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Curve:
    """A line from left to right; a point whose y is None or infinite is left out."""

    name: str
    colour: str  # #rrggbb
    points: Points
    runs: Sequence[Points] = ()  # thin lines behind it, in its colour


def has_curves(sheet: Sheet, records: Sequence[Record]) -> bool:
    """Whether what is compared was measured while training."""
    return all(record["history"].get(sheet.metric) for record in records)


def learning_curves(sheet: Sheet, records: Sequence[Record]) -> list[Curve]:
    """A curve for each loss, of records of one scenario."""
    curves = []
    for loss in tables.losses(sheet, records):
        histories = [record["history"] for record in records if record["loss"] == loss]
        runs = [list(zip(h["epoch"], h[sheet.metric], strict=True)) for h in histories]
        style = sheet.losses[loss]
        curves.append(Curve(style.symbol, style.colour, _median(runs), runs))
    return curves


def drawable(points: Points, log: bool = False) -> list[tuple[float, float]]:
    """The points that have a place in a drawing."""
    return [
        (x, y)
        for x, y in points
        if y is not None and math.isfinite(y) and not (log and min(x, y) <= 0)
    ]


def ends(curves: Sequence[Curve], log: bool = False) -> dict[str, float]:
    """The last value of each curve that has one."""
    found = {curve.name: drawable(curve.points, log) for curve in curves}
    return {name: points[-1][1] for name, points in found.items() if points}


def draw_curves(axes: Any, curves: Sequence[Curve], log: bool = False) -> None:
    """Draw curves into axes of matplotlib; `name_ends` writes their names."""
    for thick in (False, True):
        for place, curve in enumerate(curves):
            dashes = _DASHES[place % len(_DASHES)] if thick else "-"
            look = {"color": curve.colour, "lw": 2.4 if thick else 0.8, "ls": dashes}
            for line in [curve.points] if thick else curve.runs:
                points = drawable(line, log)
                if points:
                    axes.plot(*zip(*points, strict=True), alpha=1.0 if thick else 0.45, **look)


def name_ends(
    axes: Any, curves: Sequence[Curve], decimals: int, gap: float, log: bool = False
) -> None:
    """Write the name of each curve and its last value beside its end.

    Names that would cover each other move apart by a ``gap``, a share of the height.
    """
    axes.get_xlim(), axes.get_ylim()  # now its limits are those of the data
    heights = {}
    for name, end in ends(curves, log).items():
        _, height = axes.transData.transform((axes.get_xlim()[1], end))
        heights[name] = axes.transAxes.inverted().transform((0.0, height))[1]
    colours = {curve.name: curve.colour for curve in curves}
    # From below; of equal ones, the first that is named is the upper one.
    order = sorted(heights, key=lambda name: heights[name], reverse=True)[::-1]
    places = apart([heights[name] for name in order], gap, 1.0)
    for name, place in zip(order, places, strict=True):
        axes.annotate(
            end_of(name, ends(curves, log)[name], decimals),
            (1.0, place),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            va="center_baseline",
            color=colours[name],
            fontweight="bold",
            annotation_clip=False,
        )


def end_of(name: str, value: float, decimals: int) -> str:
    """What stands at the end of a curve; long names are cut, as there is no room for them."""
    return f"{shortened(name)} {value:.{decimals}f}"


def shortened(name: str, longest: int = 20) -> str:
    """
    >>> shortened("a name that is far too long")
    'a name that is far …'
    """
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def are_shares(sheet: Sheet, curves: Iterable[Curve]) -> bool:
    """Whether curves are to be drawn from 0 to 1."""
    values = [y for c in curves for line in (c.points, *c.runs) for _, y in drawable(line)]
    return tables.are_shares(sheet, values)


def apart(places: Sequence[float], gap: float, last: float) -> list[float]:
    """The same increasing places, at least a gap apart, and none beyond the last.

    >>> apart([0.0, 1.0, 9.0, 9.0], 3.0, 10.0)
    [0.0, 3.0, 7.0, 10.0]
    """
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + gap) if moved else place)
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], last if i == len(moved) - 1 else moved[i + 1] - gap)
    return moved


def _median(lines: Sequence[Points]) -> Points:
    """The median of curves over the same epochs; what is not a number does not count."""
    middle: list[tuple[float, float | None]] = []
    for points in zip(*lines, strict=True):
        values = [y for _, y in points if y is not None and math.isfinite(y)]
        middle.append((points[0][0], median(values) if values else None))
    return middle
