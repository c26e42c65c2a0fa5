"""Pictures of pictures: sheets of Blocksworld states, and what networks made of them.

Legend: S pictures; H, W height and width in pixels. All arrays are uint8 RGB.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from setwise.experiments.config import LOSSES
from setwise.experiments.reconstructions import Reconstructions
from setwise.report.paper import LOSS_NAMES

if TYPE_CHECKING:
    from PIL import Image

Picture = NDArray[np.uint8]  # [H, W, 3]
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
    from PIL import Image, ImageDraw

    image = Image.fromarray(picture)
    image = image.resize((scale * image.width, scale * image.height), Image.Resampling.BICUBIC)
    draw = ImageDraw.Draw(image)
    for x1, y1, x2, y2 in () if boxes is None else (scale * boxes.astype(int)).tolist():
        draw.rectangle((x1 - 1, y1 - 1, x2, y2), outline="#ffee33")
    return np.asarray(image)


@dataclass(frozen=True)
class Comparison:
    """What the network of a loss made of some states."""

    loss: str
    rmse: float  # over these states, of pixels from 0 to 1
    rows: list[tuple[Picture, Picture, Picture]]  # S; input, output and their difference


def compare(found: Reconstructions, scenario: str) -> list[Comparison]:
    """The networks of a scenario, in the order of the paper's losses.

    Pictures are cut to where anything is to be seen in any of them.
    """
    runs = [(number, c) for number, c in enumerate(found.configs) if c.scenario == scenario]
    if not runs:
        known = ", ".join(sorted({config.scenario for config in found.configs}))
        raise ValueError(f"scenario: there are no networks of {scenario}, only of {known}")
    runs.sort(key=lambda run: LOSSES.index(run[1].loss))
    window = _window([found.inputs, *(found.outputs[number] for number, _ in runs)])
    compared = []
    for number, config in runs:
        output = found.outputs[number]
        difference = np.abs(found.inputs.astype(int) - output).astype(np.uint8)
        rmse = math.sqrt(np.square(difference / 255.0).mean())
        rows = zip(found.inputs, output, difference, strict=True)
        cut = [(a[window], b[window], c[window]) for a, b, c in rows]
        compared.append(Comparison(config.loss, rmse, cut))
    return compared


def draw_reconstructions(found: Reconstructions, scenario: str, path: Path) -> None:
    """For each loss: inputs, what came out, and how they differ, one state a row.

    The difference is black where they are equal. All are cut to where anything is to be seen.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    shown = compare(found, scenario)
    high, wide, _ = shown[0].rows[0][0].shape
    width = 4.0  # inches of a panel, three pictures side by side
    height = width * len(found.inputs) * (high + GAP) / (3 * (wide + GAP)) + 0.9
    figure, grid = plt.subplots(
        1, len(shown), figsize=(width * len(shown), height), layout="constrained", squeeze=False
    )
    for axes, one in zip(grid.flat, shown, strict=True):
        axes.imshow(contact_sheet([p for row in one.rows for p in row], columns=3))
        axes.set_title(f"{one.loss}: {LOSS_NAMES[one.loss]}\nrmse {one.rmse:.3f} on these")
        axes.set_xlabel("input, output, difference")
        axes.set(xticks=[], yticks=[])
    save(_as_image(figure), path)
    plt.close(figure)


def save(picture: Picture | Image.Image, path: Path) -> None:
    """Photographs as ``.jpg``, drawings as a ``.png`` of few colours: both are small then."""
    from PIL import Image

    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jpg":
        image.save(path, quality=88, subsampling=0, optimize=True)
    else:
        few = image.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        few.save(path, optimize=True)


def encoded(picture: Picture) -> bytes:
    """A photograph as the bytes of a JPEG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=88, subsampling=0, optimize=True)
    return file.getvalue()


def _as_image(figure: object) -> Image.Image:
    from matplotlib.figure import Figure
    from PIL import Image

    assert isinstance(figure, Figure)
    figure.set_dpi(100)
    figure.canvas.draw()
    return Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]


def _window(pictures: Sequence[NDArray[np.uint8]], margin: int = 4) -> tuple[slice, slice]:
    """Rows and columns in which any of the pictures [S, H, W, 3] is not black."""
    seen = np.any([(some > 0).any(axis=(0, -1)) for some in pictures], axis=0)
    rows, columns = (np.flatnonzero(seen.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return slice(None), slice(None)
    return (
        slice(max(0, rows[0] - margin), rows[-1] + margin + 1),
        slice(max(0, columns[0] - margin), columns[-1] + margin + 1),
    )
