"""Kernels compiled as they are planned, for devices that need not be there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")


# Slow, for compilers are; in parts, so that processes can share them. The first tier interprets.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "kernels"),
    [
        ("bf16x6 tf32", 16),
        ("float16 others", 18),
        ("fused clouds", 26),
        ("assignment matchings", 11),
    ],
)
@pytest.mark.parametrize(("capability", "smem"), [(86, 99), (90, 227)], ids=["RTX 3090", "H200"])
def test_compiled(capability: int, smem: int, parts: str, kernels: int, tmp_path: Path) -> None:
    """Without a device: shared memory suffices, and large products are not added to.

    Maxima keep what is no number, which the interpreter's would without being told.
    """
    script = Path(__file__).parents[1] / "support" / "compile_kernels.py"
    settings = os.environ | {"TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    command = [sys.executable, str(script), str(capability), str(1024 * smem), *parts.split()]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert len(results) == kernels
    for name, shared, apart, keeps_nan in results:
        by_groups = name == "compared, points, argmax" or ".unpruned.argmax" in name
        # Of 32 pairs a thread, three for every four.
        assert keeps_nan == (24 if by_groups else 0), name
        assert shared <= 1024 * smem, name
        # Where there are scores in full precision; the dot's third operand is a constant.
        scores = "bf16x6" in name and not name.startswith("backward, ")
        assert bool(apart) == scores, name
        assert all(re.search(r"dot %\w+, %\w+, %cst", line) for line in apart), name
