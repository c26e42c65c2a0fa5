"""Every loss beside its rivals, from a record of ``setwise bench losses``: heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from setwise.report.heatmap import axes_of, said, warmth
from setwise.report.matrix import Cell, Compared, Row, compared, read, shapes_of, summary
from setwise.report.page.markup import piece
from setwise.report.page.pieces import Markup, joined, paragraph, subheading, table
from setwise.report.page.provenance import provenance, source_of

COMMAND = "setwise bench losses --output benchmarks/records/{name}"
READING = (
    "A number says how many times as fast as its fastest rival a loss is, forward and backward: "
    "green where ours is faster, red where the rival is, which is named below. Rivals are the "
    "formula in plain PyTorch, the same under torch.compile, and libraries that were there. Where "
    "no rival exists, or none had the memory for it, the time of ours stands alone."
)
_MODES = {
    "eager": "called as it is",
    "compiled": "inside the torch.compile of whoever calls it",
    "graph": "both from CUDA graphs, which cost the host nothing",
}
# How warm a cell has to be for each colour; see `warmth`. About 1.15, 2 and 5 times as fast.
_STEPS = (0.05, 0.25, 0.6)


def matrix_record(path: Path) -> Markup:
    """The heat maps of a record, mode by mode, and where they come from."""
    header, rows = read(path)
    parts = [subheading(f"{header.get('hardware', 'somewhere')}, {path.stem}")]
    parts.append(paragraph(READING, kind="note"))
    for mode, found in compared(rows).items():
        caption = f"{path.stem}: {_MODES[mode]}; shapes are sets x elements x features"
        parts += [_heat_map(caption, found, rows), paragraph(summary(found))]
    source = source_of(header, header, f"{len(rows)} measurements")
    parts.append(provenance([COMMAND.format(name=path.name)], [source], path.stem, level=4))
    return joined(parts)


def _heat_map(caption: str, found: Mapping[Cell, Compared], rows: Sequence[Row]) -> Markup:
    names, shapes = axes_of(found)
    sizes = shapes_of(rows)
    lines = [
        [f"{loss}, {family}", *(_heat(found.get((loss, family, shape))) for shape in shapes)]
        for loss, family in names
    ]
    return table(caption, ["", *(f"{shape} {sizes[shape]}" for shape in shapes)], lines)


def _heat(one: Compared | None) -> Markup:
    """The ratio on its colour, with the rival; nothing where nothing was measured."""
    if one is None:
        return Markup("")
    warm = warmth(one) or 0.0
    level = sum(abs(warm) >= step for step in _STEPS)
    side = f"{'ahead' if warm > 0 else 'behind'}-{level}" if level else ""
    return piece("heat", said(one), side, one.failed or one.rival or "")
