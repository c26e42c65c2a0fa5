"""Sets that are spread over two processes on one GPU, which meet by way of the host."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ranks import launch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(("kind", "allowed"), [("float64", 1e-12), ("float32", 2e-5)])
def test_value_and_gradients_are_those_of_whole_sets(kind: str, allowed: float) -> None:
    """In float32 the kernels compute both, whole sets and parts of them."""
    script = Path(__file__).parent.parent / "support" / "sharded_losses.py"
    for told in launch(script, 2, "cuda", kind):
        errors = told["2"]["errors"]
        assert len(errors) == 112
        assert {name: error for name, error in errors.items() if not error <= allowed} == {}
        assert told["2"]["temperature"] <= allowed
