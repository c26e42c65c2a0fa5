"""From light to bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def display(linear: NDArray[np.floating[Any]]) -> NDArray[np.uint8]:
    """Linear light as the bytes of an sRGB picture."""
    clipped = linear.clip(0, 1)
    curve = np.where(clipped <= 0.0031308, 12.92 * clipped, 1.055 * clipped ** (1 / 2.4) - 0.055)
    return (255 * curve + 0.5).astype(np.uint8)
