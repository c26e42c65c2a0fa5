"""A plain picture of any set: one row of grey cells for each object, one cell for each feature.

Legend: P sets, N objects, F features, H, W height and width of a picture.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Pictures = NDArray[np.uint8]  # [.., H, W, 3]

_CELL, _LINE = 14, 2  # pixels: of a cell along each side, between two cells
_WRONG = (225, 30, 40)  # what is no number


def draw_features(objects: Tensor) -> Pictures:
    """Sets of objects [P, N, F] as pictures [P, H, W, 3].

    White is the largest value of the feature among all sets drawn, black the smallest. The rows are
    sorted, so that the order of the objects does not matter.
    """
    values = objects.double().numpy()
    finite = np.isfinite(values)
    low = np.where(finite, values, np.inf).min((0, 1))
    high = np.where(finite, values, -np.inf).max((0, 1))
    known = np.where(finite, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num((known - low) / (high - low)).clip(0, 1)
    grey = np.repeat((255 * share)[..., None], 3, axis=-1).round().astype(np.uint8)
    grey[~finite] = _WRONG
    pairs = zip(grey, known, strict=True)
    ordered = np.stack([shown[np.lexsort(rows.T[::-1])] for shown, rows in pairs])
    cells = ordered.repeat(_CELL, axis=1).repeat(_CELL, axis=2)
    lines = np.arange(max(cells.shape[1:3])) % _CELL < _LINE
    cells[:, lines[: cells.shape[1]]] = cells[:, :, lines[: cells.shape[2]]] = 70
    picture: Pictures = cells
    return picture
