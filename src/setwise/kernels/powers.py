"""Powers that may be next to nothing, of which there are many once outputs are told apart.

Numbers below the least that their type holds in full precision take Intel's MKL up to two hundred
times as long as others, and x86 processors ten times as long to multiply. Here they are 0 at once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from setwise.kernels.transforms import has_tangent, is_eager

# What is below e to the power of these has lost digits, or is 0.
LEAST = {torch.float32: -87.0, torch.float64: -708.0}
# The same less the logarithm of a number that no set has elements.
LEAST_WEIGHED = {torch.float32: -60.0, torch.float64: -680.0}
# Elsewhere they take no longer.
ARE_DEAR = torch.backends.mkl.is_available()


def not_too_small(exponents: Tensor) -> Tensor:
    """The same numbers, none of which is so small that its power is dear, nor its softmax weight.

    For exponents relative to the largest, which is 0. Where one is raised, it has no gradient.
    """
    least = LEAST_WEIGHED.get(exponents.dtype)
    if least is None or not _are_dear(exponents) or not is_eager() or has_tangent(exponents):
        return exponents
    if not exponents.detach().amin().item() < least:
        return exponents
    # Minus infinity stays what it is: there may be nothing else.
    return torch.where(exponents > -math.inf, exponents.clamp(min=least), exponents)


def _are_dear(exponents: Tensor) -> bool:
    return ARE_DEAR and exponents.device.type == "cpu" and exponents.numel() > 0


def any_lost(exponents: Tensor) -> bool:
    """Whether a power would be dear."""
    return _are_dear(exponents) and exponents.amin().item() < LEAST[exponents.dtype]


def exp(exponents: Tensor) -> Tensor:
    """As `exp_`, of numbers that stay."""
    return exp_(exponents.clone()) if any_lost(exponents) else exponents.exp()


def exp_(exponents: Tensor) -> Tensor:
    """In place; powers that would be dear are 0, and NaN stays."""
    if not any_lost(exponents):
        return exponents.exp_()
    least = LEAST[exponents.dtype]
    powers = exponents.clamp_(min=least).exp_()
    return torch.threshold_(powers, math.exp(least) * (1 + 1e-5), 0.0)


def exp2_above_(exponents: Tensor, least: float) -> Tensor:
    """Powers of two in place; those of exponents below ``least`` are 0, where they are dear."""
    if not _are_dear(exponents):
        return exponents.exp2_()
    return torch.threshold_(exponents, least, -math.inf).exp2_()
