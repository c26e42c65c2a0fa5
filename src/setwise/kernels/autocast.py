"""Keeping autocast away from scores."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def no_autocast(tensor: Tensor) -> AbstractContextManager[None]:
    """No autocast inside: a score is a small difference of large terms."""
    kind = tensor.device.type
    if kind == "meta" or not (torch.compiler.is_compiling() or torch.is_autocast_enabled(kind)):
        return nullcontext()
    return torch.autocast(kind, enabled=False)
