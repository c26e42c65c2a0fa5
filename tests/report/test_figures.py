"""Pictures of experiments: what is drawn of the records, in the colours of the sheet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recorded import H1H, SH, SHEETS, make_records
from setwise.report import figures
from setwise.report.curves import Curve, apart, learning_curves, shortened


@pytest.mark.parametrize(
    ("name", "scenarios"),
    [("table1", 1), pytest.param("table4", 5, marks=pytest.mark.slow)],  # five times the panels
)
def test_pictures_render(name: str, scenarios: int, tmp_path: Path) -> None:
    some = list(SHEETS[name].scenarios)[-scenarios:]
    records = make_records(name, scenarios=some, losses=[SH, H1H])
    figures.draw(SHEETS[name], records, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{name}-cells.png",
        f"{name}-curves.png",
    ]
    for path in tmp_path.iterdir():
        with Image.open(path) as picture:
            assert picture.info["Source"] == figures.source(records)
            colours = np.unique(np.asarray(picture.convert("RGB")).reshape(-1, 3), axis=0)
        crimson = np.array([220, 20, 60])
        assert np.abs(colours.astype(int) - crimson).max(axis=1).min() < 20, "SH is not drawn"
        assert path.stat().st_size < 300_000


def test_what_was_not_measured_while_training_has_no_curves() -> None:
    records = make_records()
    records[0]["history"]["success"] = []
    assert list(figures.pictures(SHEETS["table1"], records)) == ["table1-cells.png"]


def test_labels_move_apart_and_stay_inside() -> None:
    for heights in ([0.0, 0.0, 0.01, 0.02], [0.9, 0.95, 1.0, 1.0], [0.0, 0.5, 0.55, 1.0]):
        moved = apart(heights, 0.1, 1.0)
        gaps = np.diff(moved)
        assert (gaps > 0.1 - 1e-9).all()
        assert max(moved) <= 1.0
        assert max(abs(np.array(moved) - heights)) <= 0.3 + 1e-9


def test_a_thick_curve_is_the_median_of_its_runs() -> None:
    """A run that diverged does not count where it has no number."""
    records = make_records(scenarios=["3"], losses=[SH])
    records[0]["history"]["success"] = [0.2, None]
    (curve,) = learning_curves(SHEETS["table1"], records)
    assert (curve.name, curve.colour) == ("SH", "#dc143c")
    assert curve.points == [(750, 0.4), (1500, pytest.approx(0.85))]
    assert len(curve.runs) == 3
    assert isinstance(curve, Curve)
    assert shortened("x" * 20) == "x" * 20
