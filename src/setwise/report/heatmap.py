"""The matrix of losses as tables in the terminal, and as heat maps in a picture."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from setwise.report.matrix import Cell, Compared, Row, compared, shapes_of, summary

# Inches: what stands beside a map, and a column, wide enough for the sizes below it.
LABELS, COLUMN = 2.0, 1.0
MOST = 16.0  # ratios beyond, to either side, have the colour of this one


def print_table(header: Row, rows: Sequence[Row]) -> None:
    """Ratios by loss, family and shape, mode by mode."""
    from rich.console import Console
    from rich.table import Table

    for mode, found in compared(rows).items():
        names, shapes = axes_of(found)
        table = Table(title=f"times as fast as the fastest rival, {mode}, {header['hardware']}")
        for column in ("loss", "family"):
            table.add_column(column, no_wrap=True)
        for shape in shapes:
            table.add_column(shape, justify="right")
        for loss, family in names:
            texts = [said(found.get((loss, family, shape))) for shape in shapes]
            table.add_row(loss, family, *texts)
        console = Console(width=120)
        console.print(table)
        console.print(summary(found), highlight=False)


def draw(header: Row, rows: Sequence[Row], path: Path) -> None:
    """A heat map for each mode: red where the fastest rival is faster, blue where ours is."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    modes = compared(rows)
    lines, columns = (
        max((len(axes_of(found)[side]) for found in modes.values()), default=1) for side in (0, 1)
    )
    width = LABELS + COLUMN * max(columns, 4)
    figure, axes = plt.subplots(
        1, max(1, len(modes)), figsize=(width * max(1, len(modes)), 1.6 + 0.3 * lines),
        layout="constrained", squeeze=False,
    )  # fmt: skip
    figure.suptitle(
        f"How many times as fast as the fastest rival, {header['hardware']}, "
        f"torch {header['torch']}"
    )
    for one, (mode, found) in zip(axes[0], modes.items(), strict=False):
        _draw_mode(one, mode, found, shapes_of(rows))
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata: Any = {"Software": None, "Source": source(rows)}
    figure.savefig(path, dpi=72, metadata=metadata, pil_kwargs={"optimize": True})
    plt.close(figure)


def source(rows: Sequence[Row]) -> str:
    """What a picture says of the rows it was drawn from."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def said(one: Compared | None) -> str:
    """A cell in a few letters: the ratio, or ours alone, or why there is none.

    >>> said(Compared(2.0, "dense", 5.0)), said(Compared(2.0)), said(None)
    ('2.5', '2.0 ms', '')
    """
    if one is None:
        return ""
    if one.ours_ms is None:
        return "memory" if one.failed == "out of memory" else "failed"
    if one.ratio is not None:
        return f"{one.ratio:.1f}" if one.ratio >= 1 else f"{one.ratio:.2f}"
    return f"{one.ours_ms:.{1 if one.ours_ms >= 1 else 2}f} ms"


def warmth(one: Compared | None) -> float | None:
    """From -1, a rival is as many times as fast as `MOST`, to 1, ours is; None without a ratio.

    Ours alone has a time where every rival failed: that is as good as it gets.
    """
    if one is None or one.ours_ms is None or one.rival is None:
        return None
    if one.ratio is None:
        return 1.0
    return max(-1.0, min(1.0, math.log(one.ratio) / math.log(MOST)))


def _draw_mode(
    axes: Any, mode: str, found: Mapping[Cell, Compared], shapes: Mapping[str, str]
) -> None:
    names, columns = axes_of(found)
    cells = [[found.get((*name, shape)) for shape in columns] for name in names]
    colours = [[warmth(one) for one in row] for row in cells]
    numbers = [[math.nan if c is None else c for c in row] for row in colours]
    axes.imshow(numbers, cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    for i, row in enumerate(cells):
        for j, one in enumerate(row):
            bright = abs(colours[i][j] or 0) < 0.6
            colour = "black" if bright else "white"
            axes.text(j, i, said(one), ha="center", va="center", fontsize=9, color=colour)
    axes.set_xticks(range(len(columns)), [f"{s}\n{shapes[s]}" for s in columns], fontsize=8)
    axes.set_yticks(range(len(names)), [f"{loss}, {family}" for loss, family in names], fontsize=9)
    axes.set_title(mode)


def axes_of(found: Mapping[Cell, Compared]) -> tuple[list[tuple[str, str]], list[str]]:
    """Losses with families, those of a loss together; and shapes."""
    losses = list(dict.fromkeys(loss for loss, _, _ in found))
    names = dict.fromkeys((loss, family) for loss, family, _ in found)
    shapes = dict.fromkeys(shape for _, _, shape in found)
    return sorted(names, key=lambda name: losses.index(name[0])), list(shapes)
