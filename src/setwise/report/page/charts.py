"""Curves and bars as SVG. Colours are the page's, so that they follow light and dark.

Each drawing is about as wide as a phone and is never drawn much larger, so that its letters have
12 pixels or more everywhere; several of them share a row where there is room.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from setwise.report.labels import apart
from setwise.report.page.html import EMPTY, Html, element, joined
from setwise.report.page.scales import Scale, fitted, short

Points = Sequence[tuple[float, float | None]]

WIDTH, HEIGHT = 360, 236
LEFT, TOP, BOTTOM = 42, 30, 40  # around a plot
ROW = 26  # the height of a bar, with what is between two
LETTER, LINE = 8.4, 15  # units that a letter takes, and a line
LONGEST = 20  # letters of a name in a drawing; the rest of it is told in words
# The losses of the paper have a colour of their own, whichever of them a drawing shows.
COLOURS = {"SH": 1, "H": 2, "A1H": 3, "H1H": 4}
ALL_COLOURS = 8


def curves(
    title: str,
    lines: Mapping[str, Points],
    x_label: str,
    y_label: str,
    *,
    behind: Mapping[str, Sequence[Points]] | None = None,
    y_range: tuple[float, float] | None = None,
    log: bool = False,
    decimals: int = 2,
) -> Html:
    """A line for each name, which stands at its end with the last value.

    Args:
        title: Above the drawing.
        lines: Points from left to right. One whose y is None or infinite is left out.
        x_label: Below the drawing.
        y_label: Above its upper left corner.
        behind: For a name any number of thin lines in its colour: the runs behind a median.
        y_range: Least and largest y; by default, that of the points.
        log: Both axes are logarithmic.
        decimals: Of the value at the end of a line.
    """
    behind = behind or {}
    every = [*lines.values(), *(line for some in behind.values() for line in some)]
    kept = [point for line in every for point in _drawable(line, log)]
    ends = {name: found[-1][1] for name, line in lines.items() if (found := _drawable(line, log))}
    longest = max((len(_end(name, end, decimals)) for name, end in ends.items()), default=0)
    right = WIDTH - 8 - LETTER * longest
    x = fitted([at for at, _ in kept] + ([] if log else [0.0]), LEFT, right, log)
    y = fitted(list(y_range or [at for _, at in kept]), HEIGHT - BOTTOM, TOP, log)
    parts = [_grid(x, y, x_label, y_label)]
    for name in lines:
        for line in behind.get(name, ()):
            parts.append(_path(line, x, y, f"thin {_colour(name, lines)}"))
    for name, line in lines.items():
        parts.append(_path(line, x, y, f"thick {_colour(name, lines)}"))
    parts.append(_named_ends(ends, lines, right, y, decimals))
    said = "; ".join(f"{name} ends at {end:.{decimals}f}" for name, end in ends.items())
    return _figure(title, HEIGHT, parts, f"{title}: {y_label} over {x_label}. {said}.")


def bars(
    title: str,
    values: Mapping[str, float],
    label: str,
    *,
    notes: Mapping[str, str] | None = None,
    mark: float | None = None,
) -> Html:
    """A bar for each name, from zero, in the first colour, with its value and a note behind it.

    A line at ``mark`` is what to compare them with.
    """
    after = notes or {}
    ends = {name: f"{v:.1f} {_cut(after.get(name, ''))}".rstrip() for name, v in values.items()}
    height = len(values) * ROW + 30
    left = round(12 + LETTER * max((len(_cut(name)) for name in values), default=0))
    largest = max([*values.values(), mark or 0.0])
    longest = max(map(len, ends.values()), default=0)
    x = Scale(0, largest, left, WIDTH - 8 - LETTER * longest)
    parts = []
    for row, (name, value) in enumerate(values.items()):
        top, end = row * ROW + 4, x(value)
        parts.append(element("text", _cut(name), x=left - 6, y=top + 14, text_anchor="end"))
        parts.append(
            element("rect", x=left, y=top, width=round(end - left, 1), height=18, class_="s1")
        )
        # Right of the bar, and never on the line that it is compared with.
        beyond = end if mark is None else max(end, x(mark))
        parts.append(element("text", ends[name], x=beyond + 5, y=top + 14, class_="value"))
    if mark is not None:
        at = x(mark)
        parts.append(element("line", x1=at, x2=at, y1=0, y2=height - 26, class_="mark"))
    parts.append(element("text", label, x=6, y=height - 8))
    said = ", ".join(f"{name} {end}" for name, end in ends.items())
    return _figure(title, height, parts, f"{title}: {label}. {said}.")


def dots(values: Sequence[float], mark: float | None, ends: tuple[float, float], name: str) -> Html:
    """Where runs lie between two ends, in the height of a line; a bar stands for the paper.

    Nothing is said here that does not stand beside it in numbers.
    """
    low, high = ends if ends[0] < ends[1] else (ends[0] - 0.5, ends[1] + 0.5)
    x = Scale(low, high, 6, 114)
    parts = [element("line", x1=6, x2=114, y1=9, y2=9, class_="grid")]
    colour = f"s{COLOURS.get(name, 5)}"
    parts += [element("circle", cx=x(v), cy=9, r=4, class_=f"dot {colour}") for v in values]
    if mark is not None:
        at = x(min(max(mark, low), high))
        parts.append(element("line", x1=at, x2=at, y1=1, y2=17, class_="mark"))
    return element("svg", *parts, viewBox="0 0 120 18", class_="dots", aria_hidden="true")


def _drawable(line: Points, log: bool) -> list[tuple[float, float]]:
    return [
        (x, y)
        for x, y in line
        if y is not None and math.isfinite(y) and not (log and min(x, y) <= 0)
    ]


def _colour(name: str, names: Mapping[str, object]) -> str:
    """The class of a line: its own colour, or the next that is no loss's."""
    if name in COLOURS:
        return f"s{COLOURS[name]}"
    others = [other for other in names if other not in COLOURS]
    free = [n for n in range(1, ALL_COLOURS + 1) if n not in {COLOURS.get(o) for o in names}]
    return f"s{free[others.index(name) % len(free)]}"


def _path(line: Points, x: Scale, y: Scale, look: str) -> Html:
    points = [f"{x(a):g} {y(min(max(b, y.low), y.high)):g}" for a, b in _drawable(line, y.log)]
    return element("path", d=f"M{'L'.join(points)}", class_=look) if points else EMPTY


def _grid(x: Scale, y: Scale, x_label: str, y_label: str) -> Html:
    parts = [element("text", y_label, x=0, y=13)]
    for tick in y.ticks():
        at = y(tick)
        parts.append(element("line", x1=x.start, x2=x.end, y1=at, y2=at, class_="grid"))
        parts.append(element("text", short(tick), x=LEFT - 6, y=at + 4, text_anchor="end"))
    for tick in x.ticks():
        at = x(tick)
        parts.append(element("line", x1=at, x2=at, y1=y.start, y2=y.start + 4, class_="grid"))
        parts.append(element("text", short(tick), x=at, y=y.start + 19, text_anchor="middle"))
    middle = (x.start + x.end) / 2
    parts.append(element("text", x_label, x=middle, y=HEIGHT - 3, text_anchor="middle"))
    return joined(parts)


def _named_ends(
    ends: Mapping[str, float], names: Mapping[str, object], right: float, y: Scale, decimals: int
) -> Html:
    """Names that would cover each other move apart."""
    # From the top down; of equal ones, the first named is the upper.
    order = sorted(ends, key=lambda name: -ends[name])
    places = apart([y(min(max(ends[name], y.low), y.high)) for name in order], LINE, y.start)
    return joined(
        element(
            "text",
            _end(name, ends[name], decimals),
            x=right + 6,
            y=place + 4,
            class_=f"end {_colour(name, names)}",
        )
        for name, place in zip(order, places, strict=True)
    )


def _end(name: str, value: float, decimals: int) -> str:
    return f"{_cut(name)} {value:.{decimals}f}"


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _figure(title: str, height: int, parts: Sequence[str], said: str) -> Html:
    drawing = element("svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=said)
    return element("figure", element("figcaption", title), drawing, class_="chart")
