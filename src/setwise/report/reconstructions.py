"""What networks made of pictures of states, one network a loss, cut to what is to be seen.

Legend: S states; H, W height and width in pixels. All arrays are uint8 RGB.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from setwise.experiments.experiment import Sheet
from setwise.experiments.reconstructions import Reconstructions

Picture = NDArray[np.uint8]  # [H, W, 3]


@dataclass(frozen=True)
class Comparison:
    """What the network of a loss made of some states."""

    loss: str
    rmse: float  # over these states, of pixels from 0 to 1
    rows: list[tuple[Picture, Picture, Picture]]  # S; input, output and their difference


def compare(sheet: Sheet, found: Reconstructions, scenario: str) -> list[Comparison]:
    """The networks of a scenario, in the order of the sheet's losses.

    Pictures are cut to where anything is to be seen in any of them.
    """
    configs = found.configs
    runs = [(number, c.loss) for number, c in enumerate(configs) if c.scenario == scenario]
    if not runs:
        known = ", ".join(sorted({config.scenario for config in configs}))
        raise ValueError(f"scenario: there are no networks of {scenario}, only of {known}")
    order = list(sheet.losses)
    runs.sort(key=lambda run: order.index(run[1]))
    window = _window([found.inputs, *(found.outputs[number] for number, _ in runs)])
    compared = []
    for number, loss in runs:
        output = found.outputs[number]
        difference = np.abs(found.inputs.astype(int) - output).astype(np.uint8)
        rmse = math.sqrt(np.square(difference / 255.0).mean())
        rows = zip(found.inputs, output, difference, strict=True)
        cut = [(a[window], b[window], c[window]) for a, b, c in rows]
        compared.append(Comparison(loss, rmse, cut))
    return compared


def encoded(picture: Picture) -> bytes:
    """A photograph as the bytes of a JPEG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(picture).save(file, "JPEG", quality=88, subsampling=0, optimize=True)
    return file.getvalue()


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
