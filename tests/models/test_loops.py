"""Losses and metrics as they are in the loops of others, on two processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ranks import launch

# Slow because other packages are imported twice; examples/torchrun.py is the plain loop.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told() -> list[dict[str, Any]]:
    return launch(Path(__file__).parent.parent / "support" / "loops.py", 2)


@pytest.mark.parametrize("loop", ["fsdp", "fabric", "accelerate"])
def test_training_is_that_of_one_process(told: list[dict[str, Any]], loop: str) -> None:
    for rank in told:
        losses, metric = rank["alone"]
        assert rank[loop][0] == pytest.approx(losses, rel=1e-10)
        assert rank[loop][1] == pytest.approx(metric, rel=1e-6)
        assert losses[-1] < losses[0]
