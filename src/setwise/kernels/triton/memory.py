"""Memory that kernels write to, and what they are given where they read nothing."""

from __future__ import annotations

import torch
from torch import Tensor


def floats(device: torch.device, *shape: int) -> Tensor:
    """Of float32, whatever ``torch.set_default_dtype`` says; not yet written."""
    return torch.empty(shape, dtype=torch.float32, device=device)


def either(given: Tensor | None, unread: Tensor) -> Tensor:
    """An argument that is optional: kernels take some array even where they do not look at it."""
    return unread if given is None else given


def mask_bytes(valid: Tensor | None, unread: Tensor) -> Tensor:
    """A mask of booleans as the bytes that kernels read; optional as of `either`."""
    return unread if valid is None else valid.view(torch.uint8)
