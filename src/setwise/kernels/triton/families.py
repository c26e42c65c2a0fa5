"""What an element of the built-in families costs, and its derivative: the parts of fused kernels.

Legend: of an output z is a feature or a tile of them, x that of a target. An element is described
by the KINDS of its blocks and their WIDTHS; NUMBERS holds a number for each: the weight of its
cost or, where that is a square, the factor of the square.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.weights import LN_2, LOG2_E

# Kinds of blocks, as `setwise.features.family.Family.kernel` names them.
KINDS = {"bernoulli": 0, "categorical": 1, "categorical as bernoulli": 2, "square": 3}
BERNOULLI = tl.constexpr(0)
CATEGORICAL = tl.constexpr(1)
CHOICE = tl.constexpr(2)
SQUARE = tl.constexpr(3)


@triton.jit
def temperature_of(T, t, ON_DEVICE: tl.constexpr):
    """The temperature: a number, or where it lies ON_DEVICE."""
    if ON_DEVICE:
        return tl.load(T).to(tl.float32)
    else:
        return t


@triton.jit
def softplus(z):
    """``log(1 + e^z)``, without overflow."""
    return tl.maximum(z, 0.0) + log1p_of_exp(-tl.abs(z))


@triton.jit
def log1p_of_exp(z):
    """``log(1 + e^z)`` of z <= 0; small ones by the series, where 1 + e^z rounds."""
    e = tl.exp2(z * LOG2_E)
    return tl.where(e < 1e-3, e * (1.0 - e * (0.5 - e * 0.3333333)), LN_2 * tl.log2(1.0 + e))


@triton.jit
def _log1m(p):
    """``log(1 - p)`` of 0 <= p <= 1/2."""
    return tl.where(p < 1e-3, -p * (1.0 + p * (0.5 + p * 0.3333333)), LN_2 * tl.log2(1.0 - p))


@triton.jit
def choice_terms(z, f, ok, KIND: tl.constexpr):
    """Of classes [rows, width]: log of the total, the likeliest, and log of the total without it.

    Only what the KIND of choice wants is more than zeros.
    """
    z = tl.where(ok, z, float("-inf"))
    top = tl.max(z, 1)
    absent = top == float("-inf")  # rows that are not there; what they get must only be a number
    total = _log_sum(z, tl.where(absent, 0.0, top), absent)
    best = tl.zeros([z.shape[0]], tl.int32)
    others = total
    if KIND == CHOICE:
        best = tl.min(tl.where(z == top[:, None], f[None, :], 2147483647), 1)
        rest = tl.where(f[None, :] == best[:, None], float("-inf"), z)
        second = tl.max(rest, 1)
        others = _log_sum(rest, tl.where(second == float("-inf"), 0.0, second), absent)
    return total, best, others


@triton.jit
def _log_sum(z, anchor, absent):
    """``log sum e^z`` of each row, taken relative to an anchor; 0 if it is absent."""
    total = tl.sum(tl.exp2((z - anchor[:, None]) * LOG2_E), 1)
    return anchor + LN_2 * tl.log2(tl.where(absent, 1.0, total))


@triton.jit
def logs(z, f, total, best, others, KIND: tl.constexpr):
    """``log p`` and ``log(1 - p)`` of feature f, or zeros for the latter where it costs nothing.

    Every class but the likeliest has p <= 1/2; for that one 1 - p is the mass of all the others.
    """
    if KIND == BERNOULLI:
        return -softplus(-z), -softplus(z)
    elif KIND == CATEGORICAL:
        return z - total, tl.zeros_like(z)
    else:
        log_p = z - total
        p = tl.exp2(tl.minimum(log_p, 0.0) * LOG2_E)
        return log_p, tl.where(f == best, others - total, _log1m(tl.minimum(p, 0.5)))


@triton.jit
def attraction(z, s, c, f, total, best, others, KIND: tl.constexpr):
    """What feature f gets of its own, where s is ``sum_i p_i x_if`` and c is ``sum_i p_i``.

    The derivative of ``sum_i p_i (x_i . log p + (1 - x_i) . log(1 - p))``. That of choices is this
    less `repulsion`, which takes the sum of this over all classes.
    """
    if KIND == BERNOULLI:
        return s - c * tl.sigmoid(z)
    elif KIND == CATEGORICAL:
        return s
    else:
        p = tl.exp2(tl.minimum(z - total, 0.0) * LOG2_E)
        odds = p / (1.0 - tl.minimum(p, 0.5))
        return tl.where(f == best, s, s - (c - s) * odds)


@triton.jit
def repulsion(z, pull, missing, f, total, best, others, KIND: tl.constexpr):
    """What choices push feature f by: ``pull`` is the sum of `attraction` over the classes.

    ``missing`` is ``sum_i p_i (1 - x_i)`` of the likeliest class, which is charged for the mass of
    all others: by a difference of logarithms, for 1 - p would cancel.
    """
    p = tl.exp2((z - total) * LOG2_E)
    if KIND == CATEGORICAL:
        return p * pull
    else:
        of_others = tl.where(f == best, 0.0, tl.exp2((z - others) * LOG2_E))
        return p * (pull + missing) - missing * of_others
