"""Curves and bars, drawn by matplotlib as SVG that is part of a page.

Of what matplotlib writes only lines, areas and texts are kept, without any name or style: letters
are the page's own, colours follow light and dark, and nothing can collide with another drawing.
Each drawing is about as wide as a phone and is never drawn much larger, so that its letters have
12 pixels or more everywhere; several of them share a row where there is room.

The dots in the cells of tables are no drawings of matplotlib: a dozen circles without an axis weigh
a tenth as much in the template, and a page has a hundred of them.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from setwise.report.curves import Curve, draw_curves, drawable, end_of, ends, name_ends, shortened
from setwise.report.page.colours import PALETTE, themed
from setwise.report.page.markup import piece

WIDTH, HEIGHT = 360, 236
LEFT, TOP, BOTTOM = 42, 30, 40  # around a plot
ROW = 26  # the height of a bar, with what is between two
LETTER, LINE = 8.4, 15  # units that a letter takes, and a line
WIDEST = int(WIDTH / LETTER)  # letters that fit into a drawing
# Colours that stand for those of the page; see style.css.
QUIET, TEXT, EDGE = "#000001", "#000002", "#000003"
_INKS = {QUIET: "var(--quiet)", TEXT: "var(--text)", EDGE: "var(--edge)"}
# Names and labels are anybody's: none of them is a formula.
_STYLE: Any = {
    **{"font.size": 13, "text.color": QUIET, "axes.labelcolor": QUIET, "text.parse_math": False},
    **{"xtick.color": QUIET, "ytick.color": QUIET, "grid.color": EDGE, "grid.linewidth": 1},
    **{"svg.fonttype": "none", "svg.hashsalt": "setwise"},
}
_KEPT = (
    *("fill", "fill-opacity", "text-anchor", "opacity"),
    *("stroke", "stroke-dasharray", "stroke-linecap", "stroke-opacity", "stroke-width"),
)


def curves(
    title: str,
    lines: Sequence[Curve],
    x_label: str,
    y_label: str,
    *,
    shares: bool = False,
    log: bool = False,
    decimals: int = 2,
) -> Markup:
    """Curves, each with its name and its last value where it ends.

    Args:
        title: Above the drawing.
        lines: What to draw.
        x_label: Below the drawing.
        y_label: Above its upper left corner.
        shares: The vertical axis goes from 0 to 1.
        log: Both axes are logarithmic.
        decimals: Of the value at the end of a line.
    """
    last = ends(lines, log)
    longest = max((len(end_of(name, end, decimals)) for name, end in last.items()), default=0)
    with mpl.rc_context(_STYLE):
        figure = _figure(HEIGHT)
        axes = _axes(figure, LEFT, TOP, WIDTH - 10 - LETTER * longest, HEIGHT - BOTTOM)
        draw_curves(axes, lines, log)
        kept = [at for line in lines for points in (line.points, *line.runs) for at in points]
        _scale(axes, drawable(kept, log), shares, log)
        axes.grid()
        name_ends(axes, lines, decimals, LINE / (HEIGHT - TOP - BOTTOM), log)
        axes.set_xlabel(shortened(x_label, WIDEST), labelpad=4)
        figure.text(0, 1 - 13 / HEIGHT, shortened(y_label, WIDEST))
        said = "; ".join(f"{name} ends at {end:.{decimals}f}" for name, end in last.items())
        drawing = _svg(figure, HEIGHT, f"{title}: {y_label} over {x_label}. {said}.")
    return piece("chart", title, drawing)


def bars(
    title: str,
    values: Mapping[str, float],
    label: str,
    *,
    notes: Mapping[str, str] | None = None,
    mark: float | None = None,
    colour: str = PALETTE[0],
) -> Markup:
    """A bar for each name, from zero, with its value and a note behind it.

    A line at ``mark`` is what to compare them with.
    """
    after = notes or {}
    written = {
        name: f"{value:.1f} {shortened(after.get(name, ''))}".rstrip()
        for name, value in values.items()
    }
    height = len(values) * ROW + 30
    left = 12 + LETTER * max((len(shortened(name)) for name in values), default=0)
    right = WIDTH - 8 - LETTER * max(map(len, written.values()), default=0)
    with mpl.rc_context(_STYLE):
        figure = _figure(height)
        axes = _axes(figure, left, 0, right, height - 26)
        axes.set_xlim(0, max([*values.values(), mark or 0.0]) or 1.0)
        axes.set_ylim(max(1, len(values)) - 0.5, -0.5)
        axes.set_xticks([])
        axes.set_yticks(range(len(values)), map(shortened, values))
        for row, (name, value) in enumerate(values.items()):
            axes.barh(row, value, 0.7, color=colour)
            # Right of the bar, and never on the line that it is compared with.
            beyond = max(value, mark or 0.0)
            place = {"xytext": (5, 0), "textcoords": "offset points", "va": "center_baseline"}
            look = {"color": TEXT, "fontweight": "bold"}
            axes.annotate(written[name], (beyond, row), annotation_clip=False, **place, **look)
        if mark is not None:
            axes.axvline(mark, color=TEXT, linewidth=2)
        figure.text(6 / WIDTH, 8 / height, shortened(label, WIDEST))
        said = ", ".join(f"{name} {end}" for name, end in written.items())
        drawing = _svg(figure, height, f"{title}: {label}. {said}.")
    return piece("chart", title, drawing)


def short(value: float) -> str:
    """A number at an axis.

    >>> [short(value) for value in (0, 0.25, 1500, 20000, 1e-6, 3_000_000)]
    ['0', '0.25', '1500', '20k', '1e-06', '3M']
    """
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= 10_000 and abs(value) >= size and value % (size / 10) == 0:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def powers(low: float, high: float, most: int = 5) -> list[float]:
    """Powers of ten, of a thousand where these are too many, of two where they are too few.

    >>> powers(0.5, 300), powers(0.001, 5e6), powers(1024, 65536)
    ([1, 10, 100], [0.001, 1, 1000, 1000000], [1024, 4096, 16384, 65536])
    """
    for base in (10, 1000):
        first, last = (math.log(end, base) for end in (low, high))
        found = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
        if len(found) < 2:
            break
        if len(found) <= most:
            return [_exact(float(base) ** n) for n in found]
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    return [_exact(2.0**n) for n in range(first, last + 1, max(1, (last - first) // most + 1))]


def _exact(value: float) -> float:
    """Without what the arithmetic left over; a whole number as one."""
    value = float(f"{value:.12g}")
    return int(value) if value.is_integer() else value


def _figure(height: float) -> Figure:
    return Figure(figsize=(WIDTH / 72, height / 72), dpi=72)  # a unit is a pixel


def _axes(figure: Figure, left: float, top: float, right: float, bottom: float) -> Any:
    """Axes between these places, without a frame; what is at their edges has no marks."""
    height = 72 * figure.get_figheight()
    width = max(1.0, right - left)
    place = (left / WIDTH, 1 - bottom / height, width / WIDTH, (bottom - top) / height)
    axes = figure.add_axes(place)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=6)
    axes.set_axisbelow(True)
    return axes


def _scale(axes: Any, points: Sequence[tuple[float, float]], shares: bool, log: bool) -> None:
    """The room of just these points, and a few round numbers at its edges."""
    xs, ys = ([point[at] for point in points] or [1.0, 2.0] for at in (0, 1))
    x_ends, y_ends = (_room(values, log) for values in (xs if log else [0.0, *xs], ys))
    axes.set_xlim(x_ends)
    axes.set_ylim((-0.03, 1.03) if shares else y_ends)
    for axis, found, most in ((axes.xaxis, x_ends, 4), (axes.yaxis, y_ends, 5)):
        if log:
            axis._set_axes_scale("log")
            axis.set_major_locator(FixedLocator(powers(*found)))
        else:
            axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: short(_exact(value))))


def _room(values: Sequence[float], log: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low < high:
        return low, high
    return (low / 2, high * 2) if log else (low - 0.5, high + 0.5)


def _svg(figure: Figure, height: float, said: str) -> Markup:
    """The drawing as an element of a page; ``said`` is what it says to those who do not see it."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        # The reader's letters are drawn, not those that a text is measured with.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    drawing = ElementTree.Element(
        "svg", {"viewBox": f"0 0 {WIDTH} {height:g}", "role": "img", "aria-label": said}
    )
    drawing.extend(_shapes(ElementTree.fromstring(file.getvalue())))
    return Markup(ElementTree.tostring(drawing, encoding="unicode"))


def _shapes(node: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Paths and texts that are to be seen, in their order."""
    tag = node.tag.rpartition("}")[2]
    if tag in ("path", "text"):
        look = _look(node.get("style", ""))
        if tag == "text":
            shape = ElementTree.Element(
                tag, {"x": _short(node, "x"), "y": _short(node, "y")} | look
            )
            shape.text = node.text
            yield shape
        elif {look.get("fill"), look.get("stroke", "none")} != {"none"}:
            yield ElementTree.Element(tag, {"d": _short(node, "d")} | look)
    elif tag not in ("defs", "metadata"):
        for child in node:
            yield from _shapes(child)


def _look(style: str) -> dict[str, str]:
    """A style of matplotlib as attributes: a page allows no styles but its own."""
    stated = dict(part.strip().split(": ", 1) for part in style.split(";") if part.strip())
    found = {name: value for name, value in stated.items() if name in _KEPT}
    for name in {"fill", "stroke"} & found.keys():
        if found[name] != "none":
            found[name] = _INKS.get(found[name]) or themed(found[name])
    fonts = " ".join(value for name, value in stated.items() if name.startswith("font"))
    return found | ({"font-weight": "600"} if re.search(r"\b(bold|[67]00)\b", fonts) else {})


def _short(node: ElementTree.Element, name: str) -> str:
    """Coordinates to a tenth of a unit."""
    text = " ".join(node.get(name, "").split())
    return re.sub(r"-?\d+\.\d+", lambda found: f"{round(float(found[0]), 1):g}", text)
