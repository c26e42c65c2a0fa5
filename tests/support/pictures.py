"""Pictures beside each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def differing_pixels(first: Path, second: Path) -> float:
    """The share of pixels that differ visibly in some colour."""
    a, b = (np.asarray(Image.open(path).convert("RGB"), dtype=np.int16) for path in (first, second))
    assert a.shape == b.shape
    return float((np.abs(a - b).max(axis=-1) > 24).mean())
