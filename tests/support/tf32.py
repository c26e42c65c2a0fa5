"""Numbers as tf32 holds them, and tensor cores that see no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor


def held_by_tf32(x: Tensor) -> Tensor:
    """The nearest such numbers: with them, products in tf32 are as precise as any."""
    if x.dtype != torch.float32:
        return x
    return ((x.view(torch.int32) + 4096) & -8192).view(torch.float32)


def cut_off(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Have Triton's interpreter multiply in tf32 as tensor cores do: the rest is cut off.

    Of each such product from now on, whether there was a rest.
    """
    import numpy as np
    from triton._C.libtriton import ir
    from triton.runtime import interpreter

    honest, seen = interpreter.InterpreterBuilder.create_dot, []

    def cut(handle: Any) -> Any:
        if handle.data.dtype != np.float32:
            return handle
        kept = (np.ascontiguousarray(handle.data).view(np.int32) & -8192).view(np.float32)
        seen.append(bool((kept != handle.data).any()))
        return interpreter.TensorHandle(kept, handle.dtype)

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        if precision == ir.INPUT_PRECISION.TF32:
            a, b = cut(a), cut(b)
        return honest(self, a, b, d, precision, *rest)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
    return seen
