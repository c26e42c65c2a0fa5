"""Pictures of pasted patches, cut out and enlarged.

Legend: P states of a plan, H, W height and width of a picture.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from setwise.worlds.drawing import Pictures

_MARGIN = 8  # pixels around the blocks
_HANDY = 280  # pixels from left to right, about


def photographs(pasted: Tensor) -> Pictures:
    """Pictures [P, 3, H, W] in [0, 1]: the part that is not black in all of them, in a handy size.

    >>> white = torch.zeros(1, 3, 40, 60)
    >>> white[:, :, 10:20, 10:20] = 1
    >>> photographs(white).shape
    (1, 286, 286, 3)
    """
    whole = (255 * pasted.movedim(-3, -1)).round().clamp(0, 255).to(torch.uint8).numpy()
    height, width = whole.shape[1:3]
    rows, columns = np.nonzero((whole > 0).any(axis=(0, 3)))
    if len(rows) == 0:
        return whole
    top, bottom = max(0, rows.min() - _MARGIN), min(height, rows.max() + 1 + _MARGIN)
    left, right = max(0, columns.min() - _MARGIN), min(width, columns.max() + 1 + _MARGIN)
    factor = max(1, round(_HANDY / (right - left)))
    size = (factor * int(right - left), factor * int(bottom - top))
    parts = [Image.fromarray(picture[top:bottom, left:right]) for picture in whole]
    return np.stack([np.asarray(part.resize(size, Image.Resampling.BICUBIC)) for part in parts])
