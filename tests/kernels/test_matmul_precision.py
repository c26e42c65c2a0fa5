"""Which precision PyTorch's settings ask for, set in any of its ways and read in one function."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from setwise import kernels
from setwise.kernels.matmul_precision import dot_precision, tf32_is_allowed

MATMUL = torch.backends.cuda.matmul
NEWER = hasattr(MATMUL, "fp32_precision")  # from PyTorch 2.9 on


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Both kinds of settings as they are by default, before and after each test."""

    def reset() -> None:
        torch.set_float32_matmul_precision("highest")
        if NEWER:
            torch.backends.fp32_precision = "none"
            MATMUL.fp32_precision = "none"

    reset()
    yield
    reset()


def test_full_precision_is_the_default() -> None:
    assert not tf32_is_allowed()
    assert dot_precision(torch.float32) == "float32"


@pytest.mark.parametrize(("level", "allowed"), [("highest", 0), ("high", 1), ("medium", 1)])
def test_by_level(level: str, allowed: int) -> None:
    torch.set_float32_matmul_precision(level)
    assert tf32_is_allowed() == allowed
    assert dot_precision(torch.float32) == ("tf32" if allowed else "float32")


@pytest.mark.parametrize("before", ["highest", "high", "medium"])
@pytest.mark.parametrize("allowed", [False, True])
def test_by_flag(before: str, allowed: bool) -> None:
    torch.set_float32_matmul_precision(before)
    MATMUL.allow_tf32 = allowed
    assert tf32_is_allowed() == allowed


@pytest.mark.skipif(not NEWER, reason="PyTorch 2.9 has this setting first")
@pytest.mark.parametrize("before", ["highest", "high", "medium"])
@pytest.mark.parametrize(("precision", "allowed"), [("ieee", False), ("tf32", True)])
def test_by_backend(before: str, precision: str, allowed: bool) -> None:
    """Which counts for PyTorch's own products, whatever the level was before."""
    torch.set_float32_matmul_precision(before)
    MATMUL.fp32_precision = precision
    assert tf32_is_allowed() == allowed


@pytest.mark.skipif(not NEWER, reason="PyTorch 2.9 has this setting first")
@pytest.mark.parametrize(("precision", "allowed"), [("ieee", False), ("tf32", True)])
def test_for_all_backends(precision: str, allowed: bool) -> None:
    torch.backends.fp32_precision = precision
    assert tf32_is_allowed() == allowed


@pytest.mark.parametrize("level", ["highest", "high"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bits_have_no_choice(level: str, dtype: torch.dtype) -> None:
    torch.set_float32_matmul_precision(level)
    assert dot_precision(dtype) == "tf32"


@pytest.mark.parametrize(("newer", "allowed"), [("ieee", False), ("tf32", True)])
def test_settings_that_are_at_odds(
    newer: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch refuses to read the older of them then."""

    def refused() -> str:
        raise RuntimeError("the newer setting is in use")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refused)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace(fp32_precision=newer))
    assert tf32_is_allowed() == allowed


@pytest.mark.parametrize(("level", "allowed"), [("highest", False), ("high", True)])
def test_a_pytorch_without_the_newer_setting(
    level: str, allowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: level)
    monkeypatch.setattr(torch.backends.cuda, "matmul", SimpleNamespace())
    assert tf32_is_allowed() == allowed


def test_it_is_read_in_one_place() -> None:
    """Or two kernels of a step could differ about it."""
    folder = Path(inspect.getfile(kernels)).parent
    words: tuple[Any, ...] = ("get_float32_matmul_precision", "allow_tf32", "fp32_precision")
    reading = {
        path.name
        for path in folder.rglob("*.py")
        if any(word in path.read_text() for word in words)
    }
    assert reading == {"matmul_precision.py"}
