"""Whether PyTorch differentiates forwards, for which short cuts have no formula."""

from __future__ import annotations

from torch import Tensor
from torch.autograd.forward_ad import unpack_dual


def has_tangent(*tensors: Tensor) -> bool:
    """Whether any of these is a dual number of ``torch.autograd.forward_ad``."""
    return any(unpack_dual(tensor).tangent is not None for tensor in tensors)
