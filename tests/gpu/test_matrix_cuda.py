"""The matrix of losses on a GPU, at a tiny size: every mode has a time, and memory is counted."""

from __future__ import annotations

import pytest
import torch

from setwise.bench import matrix
from setwise.bench.cells import QUICK, cells
from setwise.bench.rivals import COMPILED_GRAPH, MODES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("loss", ["SH", "A1H both", "chamfer"])
def test_every_mode_is_measured(loss: str) -> None:
    [cell] = cells(QUICK, [loss], ["Gaussian"])
    [rows] = matrix.measure("cuda", [cell])
    assert not [row for row in rows if "error" in row]
    assert {row["mode"] for row in rows if row["impl"] == "dense"} == set(MODES)
    ours = {row["mode"]: row for row in rows if row["impl"] == "setwise"}
    assert ours.keys() == set(MODES) - {COMPILED_GRAPH}
    assert all(row["peak_mb"] > 0 for row in rows)


def test_matchings_are_measured_too() -> None:
    [cell] = cells(QUICK, ["assignment"], ["Bernoulli"])
    [rows] = matrix.measure("cuda", [cell], ["eager", "graph"])
    assert not [row for row in rows if "error" in row]
    assert "scipy" in {row["impl"] for row in rows}
