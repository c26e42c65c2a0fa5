"""Sheets of Blocksworld pictures, and figures of what networks made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tools.photographs import GAP, contact_sheet, draw_reconstructions, enlarged, save

from pages import network_configs
from recorded import SHEETS
from setwise.experiments.reconstructions import Reconstructions


def test_pictures_of_a_sheet_are_in_their_places() -> None:
    pictures = [np.full((6, 8, 3), shade, dtype=np.uint8) for shade in range(5)]
    sheet = contact_sheet(pictures, columns=2)
    assert sheet.shape == (3 * 6 + 2 * GAP, 2 * 8 + GAP, 3)
    for place, picture in enumerate(pictures):
        top, left = (place // 2) * (6 + GAP), (place % 2) * (8 + GAP)
        assert (sheet[top : top + 6, left : left + 8] == picture).all()
    assert (sheet[-6:, -8:] == 255).all()  # the sixth is missing
    assert contact_sheet(pictures[:1], columns=4).shape == (6, 8, 3)


def test_boxes_are_drawn_around_what_they_hold() -> None:
    picture = np.zeros((20, 30, 3), dtype=np.uint8)
    found = enlarged(picture, 2, np.array([[5, 4, 10, 8]], dtype=np.uint16))
    drawn = np.argwhere(found.any(-1))
    assert drawn.min(0).tolist() == [7, 9]  # just outside of [8, 16) x [10, 20)
    assert drawn.max(0).tolist() == [16, 20]
    assert not found[8:16, 10:20].any()
    assert not enlarged(picture, 2).any()


@pytest.mark.parametrize("name", ["x.jpg", "x.png"])
def test_pictures_are_saved(name: str, tmp_path: Path) -> None:
    picture = np.zeros((20, 30, 3), dtype=np.uint8)
    picture[5:15, 5:15] = (250, 10, 10)
    save(picture, tmp_path / "new" / name)
    with Image.open(tmp_path / "new" / name) as image:
        assert image.size == (30, 20)
        assert np.abs(np.asarray(image.convert("RGB")).astype(int) - picture).mean() < 6


def test_reconstructions_are_drawn(tmp_path: Path) -> None:
    """A panel for each loss, of the part of the pictures in which there is something."""
    sheet, configs = SHEETS["table3"], tuple(network_configs("3"))
    inputs = np.zeros((3, 40, 60, 3), dtype=np.uint8)
    inputs[:, 10:20, 30:40] = (200, 60, 60)
    outputs = np.stack([inputs, inputs // 2, inputs, np.zeros_like(inputs)])
    found = Reconstructions(configs, (0, 1, 2), inputs, outputs, {}, "")
    draw_reconstructions(sheet, found, "3", tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as image:
        seen = np.asarray(image.convert("RGB")).astype(int)
    assert seen.shape[1] == 4 * 400
    reddish = (np.abs(seen - np.array([200, 60, 60])).max(-1) < 12).mean((0,))
    panels = [part.mean() for part in np.split(reddish, 4)]
    # Two columns where the output is right, one in the second panel; in the last, the difference.
    assert panels[0] == pytest.approx(panels[2], rel=0.05)
    assert panels[1] == pytest.approx(panels[0] / 2, rel=0.1)
    assert panels[3] == pytest.approx(panels[0], rel=0.1)
    with pytest.raises(ValueError, match="no networks of 1, only of 3"):
        draw_reconstructions(sheet, found, "1", tmp_path / "other.png")
