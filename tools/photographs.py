"""Sheets of photographs: states of the Blocksworld, and what networks made of them.

Legend: S pictures; H, W height and width in pixels. All arrays are uint8 RGB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from setwise.experiments.experiment import Sheet
from setwise.experiments.reconstructions import Reconstructions
from setwise.report.reconstructions import Picture, compare

GAP = 4  # pixels between pictures
WHITE = 255


def contact_sheet(pictures: Sequence[Picture], columns: int) -> Picture:
    """Pictures of one size side by side, row by row, on white.

    >>> sheet = contact_sheet([np.zeros((20, 30, 3), dtype=np.uint8)] * 5, columns=3)
    >>> sheet.shape
    (44, 98, 3)
    """
    height, width, _ = pictures[0].shape
    columns = min(columns, len(pictures))
    rows = math.ceil(len(pictures) / columns)
    size = (rows * (height + GAP) - GAP, columns * (width + GAP) - GAP, 3)
    sheet = np.full(size, WHITE, dtype=np.uint8)
    for place, picture in enumerate(pictures):
        top, left = (place // columns) * (height + GAP), (place % columns) * (width + GAP)
        sheet[top : top + height, left : left + width] = picture
    return sheet


def enlarged(picture: Picture, scale: int, boxes: NDArray[np.uint16] | None = None) -> Picture:
    """A picture so many times as large, with a thin line around each box [N, 4] of the small one.

    >>> enlarged(np.zeros((20, 30, 3), dtype=np.uint8), scale=2).shape
    (40, 60, 3)
    """
    image = Image.fromarray(picture)
    image = image.resize((scale * image.width, scale * image.height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for x1, y1, x2, y2 in () if boxes is None else (scale * boxes.astype(int)).tolist():
        draw.rectangle((x1 - 1, y1 - 1, x2, y2), outline="#ffee33")
    return np.asarray(image)


def draw_reconstructions(sheet: Sheet, found: Reconstructions, scenario: str, path: Path) -> None:
    """For each loss: inputs, what came out, and how they differ, one state a row.

    The difference is black where they are equal. All are cut to where anything is to be seen.
    """
    mpl.use("Agg")
    shown = compare(sheet, found, scenario)
    high, wide, _ = shown[0].rows[0][0].shape
    width = 4.0  # inches of a panel, three pictures side by side
    height = width * len(found.inputs) * (high + GAP) / (3 * (wide + GAP)) + 0.9
    figure, grid = plt.subplots(
        1, len(shown), figsize=(width * len(shown), height), layout="constrained", squeeze=False
    )
    for axes, one in zip(grid.flat, shown, strict=True):
        style = sheet.losses[one.loss]
        axes.imshow(contact_sheet([p for row in one.rows for p in row], columns=3))
        axes.set_title(f"{style.symbol}: {style.label}\nrmse {one.rmse:.3f} on these")
        axes.set_xlabel("input, output, difference")
        axes.set(xticks=[], yticks=[])
    figure.set_dpi(100)
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())  # type: ignore[attr-defined]
    save(drawn[..., :3], path)
    plt.close(figure)


def save(picture: Picture, path: Path) -> None:
    """Photographs as ``.jpg``, drawings as a ``.png`` of few colours: both are small then."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jpg":
        image.save(path, quality=88, subsampling=0, optimize=True)
    else:
        few = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
