"""Powers of e that may be next to nothing, of which there are many once outputs are told apart.

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
    """In place; powers that would be dear are 0."""
    return (
        exp_above_(exponents, LEAST[exponents.dtype]) if any_lost(exponents) else exponents.exp_()
    )


def exp_above_(exponents: Tensor, least: float) -> Tensor:
    """In place, where powers are dear; a power of an exponent below ``least`` may be 0 instead."""
    if not _are_dear(exponents):
        return exponents.exp_()
    # Whatever is as small as what all of these become; NaN is not.
    smallest = math.exp(least) * (1 + 1e-5)
    return torch.threshold_(exponents.clamp_(min=least).exp_(), smallest, 0.0)
