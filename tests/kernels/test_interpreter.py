"""Triton's interpreter as it is and as the suite has it: the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from interpreted import losses_in_hex

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="there the kernels are compiled, and nothing is interpreted"
)


def test_nothing_is_computed_otherwise() -> None:
    script = Path(__file__).parents[1] / "support" / "interpreted.py"
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plain = json.loads(done.stdout.splitlines()[-1])
    assert plain.pop("types are made once") is False
    ours = losses_in_hex()
    assert ours.pop("types are made once") is True
    assert len(ours) == 5
    assert ours == plain


def test_what_does_not_fit_is_refused_as_before() -> None:
    import triton.language as tl
    from triton.runtime.interpreter import interpreter_semantic as semantic

    with pytest.raises(ValueError, match="power of 2"):
        tl.block_type(tl.float32, [3])
    with pytest.raises(ValueError, match="power of 2"):  # and is not remembered
        tl.block_type(tl.float32, [3])
    short, long = (semantic.arange(0, size) for size in (4, 8))
    with pytest.raises(ValueError, match="incompatible dimensions at index 0: 4 and 8"):
        semantic.broadcast_impl_value(short, long)
