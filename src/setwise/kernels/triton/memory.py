"""Memory that kernels write to."""

from __future__ import annotations

import torch
from torch import Tensor


def floats(device: torch.device, *shape: int) -> Tensor:
    """Of float32, whatever ``torch.set_default_dtype`` says; not yet written."""
    return torch.empty(shape, dtype=torch.float32, device=device)
