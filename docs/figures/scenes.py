"""Draw the scenes of docs/pictures.md: the first of ``setwise data scenes``, by Mitsuba."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from setwise.render import open_renderer
from setwise.render.tabletop import SceneSettings

FIGURE = Path(__file__).with_suffix(".png")
SCENES = 5
_GAP = 4  # pixels between pictures


def picture(number: int) -> NDArray[np.uint8]:
    """The scene of a number."""
    settings = SceneSettings()
    size = {"width": settings.width, "height": settings.height, "samples": settings.samples}
    with open_renderer(settings.renderer, **size) as draw:
        return draw(settings.scene(number))


def draw(path: Path = FIGURE) -> None:
    """All of them in a row, on white."""
    side = SceneSettings.width
    row = np.full((side, SCENES * (side + _GAP) - _GAP, 3), 255, dtype=np.uint8)
    for number in range(SCENES):
        left = number * (side + _GAP)
        row[:, left : left + side] = picture(number)
    Image.fromarray(row).save(path)


if __name__ == "__main__":
    draw()
