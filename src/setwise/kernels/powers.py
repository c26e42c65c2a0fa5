"""Powers of e that may be next to nothing, of which there are many once outputs are told apart.

Numbers below the least that their type holds in full precision take Intel's MKL up to two hundred
times as long as others, and x86 processors ten times as long to multiply. Here they are 0 at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# What is below e to the power of these has lost digits, or is 0.
LEAST = {torch.float32: -87.0, torch.float64: -708.0}
# Elsewhere they take no longer.
ARE_DEAR = torch.backends.mkl.is_available()


def exp_(exponents: Tensor, least: float | None = None) -> Tensor:
    """In place; where an exponent is below ``least`` a power is 0."""
    if not ARE_DEAR or exponents.device.type != "cpu" or exponents.numel() == 0:
        return exponents.exp_()
    least = LEAST[exponents.dtype] if least is None else least
    if not exponents.amin() < least:
        return exponents.exp_()
    # Whatever is as small as what all of these become; NaN is not.
    smallest = math.exp(least) * (1 + 1e-5)
    return torch.threshold_(exponents.clamp_(min=least).exp_(), smallest, 0.0)
