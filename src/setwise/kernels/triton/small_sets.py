"""Kernels for many small sets of Bernoulli elements: one program a set, one launch for all.

Legend: M targets, N outputs, F features. At this size a set loss costs what its launches cost, so
everything from the logits to the loss of a set happens in one, and the gradient as well: the
weights it needs are at hand, and the backward pass is left with a multiplication.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.bf16x6 import add_dot_bf16x6, dot_bf16x6, split_bf16x3
from setwise.kernels.triton.rounding import as_half
from setwise.kernels.triton.scores import tile
from setwise.kernels.triton.weights import FLOAT16_SCALE, LN_2, LOG2_E, finite_max

MAX_ELEMENTS = 64
# Up to so many, a product of tiles, which has 16 rows at least, would be mostly padding.
FEW_ELEMENTS = 8


@triton.jit
def _softplus(z, f, F: tl.constexpr, dtype: tl.constexpr):
    """Added up in that type, see `preparation.prepare`; 0 where there is no feature f."""
    beyond = LN_2 * tl.log2(1.0 + tl.exp2(-tl.abs(z) * LOG2_E))
    softplus = tl.maximum(z, 0.0).to(dtype) + beyond.to(dtype)
    return tl.where((f < F)[None, :], softplus, 0.0)


@triton.jit
def _add_compensated(s, lost, x, z):
    """``s + x . z`` in full precision, and what is lost of it.

    Each of many steps rounds at the size of the total. Kahan, "Further remarks on reducing
    truncation errors" (CACM 1965).
    """
    x_high, x_middle, x_low = split_bf16x3(x, False)
    z_high, z_middle, z_low = split_bf16x3(z, False)
    part = add_dot_bf16x6(-lost, x_high, x_middle, x_low, z_high, z_middle, z_low, False, False)
    total = s + part
    return total, (total - s) - part


@triton.jit
def _weights(
    s, bias, VALID, WEIGHT, BIAS, LSE, LOSS, b, i, j, M, N, factor,
    MASKED: tl.constexpr, WEIGHTED: tl.constexpr, TERMS: tl.constexpr,
):  # fmt: skip
    """From ``s = X . Z``: stores the loss, and returns ``p_ij`` and the weight of each target.

    In full precision s and bias come in float64. They are large if there are many features, and
    what counts are their differences: once the largest score of a target has been subtracted, all
    is in float32. For the same reason terms are stored relative to the largest bias.
    """
    bias = tl.where(j < N, bias, float("-inf"))
    if MASKED:
        bias = tl.where(tl.load(VALID + b * N + j, mask=j < N, other=0) != 0, bias, float("-inf"))
    s += bias[None, :]
    top = tl.max(s, 1)
    below = (s - top[:, None]).to(tl.float32)
    above = LN_2 * tl.log2(tl.sum(tl.exp2(below * LOG2_E), 1))
    lse = top + above
    w = tl.where(i < M, 1.0, 0.0)
    if WEIGHTED:
        w = tl.load(WEIGHT + b * M + i, mask=i < M, other=0.0)
    tl.store(LOSS + b, factor * tl.sum(w * lse, 0))
    if TERMS:
        centre = finite_max(tl.max(bias, 0))
        tl.store(BIAS + b * N + j, (bias - centre).to(tl.float32), mask=j < N)
        tl.store(LSE + b * M + i, (lse - centre).to(tl.float32), mask=i < M)
    return tl.exp2((below - above[:, None]) * LOG2_E), w


@triton.jit
def set_cross_entropy(
    X, Z, VALID, WEIGHT, BIAS, LSE, LOSS, DZ, M, N, factor,
    MASKED: tl.constexpr, WEIGHTED: tl.constexpr, TERMS: tl.constexpr, GRADIENT: tl.constexpr,
    F: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """``LOSS = factor sum_i w_i lse_i``, ``lse_i = logsumexp_j(X_i . Z_j - sum softplus(Z_j))``.

    With GRADIENT also ``DZ_j = factor sum_i w_i p_ij (X_i - sigmoid(Z_j))``; with TERMS the lse and
    the bias are kept for other gradients.
    """
    b = tl.program_id(0).to(tl.int64)
    X, Z = X + b * M * F, Z + b * N * F
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    s = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    lost = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    bias = tl.zeros([BLOCK_N], tl.float64 if PRECISION == "float32" else tl.float32)
    for f0 in range(0, F, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        x, z = tile(X, i, f, i < M, F, False), tile(Z, j, f, j < N, F, False)
        if PRECISION != "float32":
            x, z = as_half(x), as_half(z)
        bias -= tl.sum(_softplus(z.to(tl.float32), f, F, bias.dtype), 1)
        if PRECISION == "float32":
            s, lost = _add_compensated(s, lost, x, tl.trans(z))
        else:
            s = tl.dot(x, tl.trans(z), s)
    if PRECISION == "float32":
        s = s.to(tl.float64) - lost.to(tl.float64)
    p, w = _weights(
        s, bias, VALID, WEIGHT, BIAS, LSE, LOSS, b, i, j, M, N, factor, MASKED, WEIGHTED, TERMS
    )
    if GRADIENT:
        # Weights relative to the largest until the end: a 16-bit product has no room for those of a
        # large batch. Their total is that of the rounded ones: both shares of a gradient cancel.
        largest = tl.max(w, 0)
        share = w / tl.where(largest > 0, largest, 1.0)
        p = tl.trans(p * share[:, None])
        HALF: tl.constexpr = PRECISION != "float32" and X.dtype.element_ty != tl.bfloat16
        if PRECISION == "float32":
            p_high, p_middle, p_low = split_bf16x3(p, True)
        elif HALF:
            p = (p * FLOAT16_SCALE).to(tl.float16)
        else:
            p = p.to(tl.bfloat16)
        total = tl.sum(p.to(tl.float32), 1)
        for f0 in range(0, F, BLOCK_F):
            f = f0 + tl.arange(0, BLOCK_F)
            x, z = tile(X, i, f, i < M, F, False), tile(Z, j, f, j < N, F, False)
            if PRECISION == "float32":
                x_high, x_middle, x_low = split_bf16x3(x, False)
                d = dot_bf16x6(p_high, p_middle, p_low, x_high, x_middle, x_low, False)
            else:
                x, z = as_half(x), as_half(z)
                d = tl.dot(p, x)
            d -= total[:, None] * tl.sigmoid(z.to(tl.float32))
            if HALF:
                d /= FLOAT16_SCALE
            d *= factor * largest
            ok = (j < N)[:, None] & (f < F)[None, :]
            tl.store(DZ + (b * N + j)[:, None] * F + f[None, :], d, mask=ok)


@triton.jit
def few_elements(
    X, Z, VALID, WEIGHT, BIAS, LSE, LOSS, DZ, M, N, factor,
    MASKED: tl.constexpr, WEIGHTED: tl.constexpr, TERMS: tl.constexpr, GRADIENT: tl.constexpr,
    F: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """The same for FEW_ELEMENTS, with plain multiply-adds: all pairs, feature by feature.

    Terms are added per slot of a tile first, and across slots once, at the end, so that sums over
    many features round little. All is in float32, whatever the precision of matrix products.
    """
    b = tl.program_id(0).to(tl.int64)
    X, Z = X + b * M * F, Z + b * N * F
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    products = tl.zeros([BLOCK_M, BLOCK_N, BLOCK_F], tl.float32)
    softplus = tl.zeros([BLOCK_N, BLOCK_F], tl.float32)
    for f0 in range(0, F, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        x = tile(X, i, f, i < M, F, False).to(tl.float32)
        z = tile(Z, j, f, j < N, F, False).to(tl.float32)
        products += x[:, None, :] * z[None, :, :]
        softplus += _softplus(z, f, F, tl.float32)
    s, bias = tl.sum(products, 2), -tl.sum(softplus, 1)
    p, w = _weights(
        s, bias, VALID, WEIGHT, BIAS, LSE, LOSS, b, i, j, M, N, factor, MASKED, WEIGHTED, TERMS
    )
    if GRADIENT:
        p *= (factor * w)[:, None]
        total = tl.sum(p, 0)
        for f0 in range(0, F, BLOCK_F):
            f = f0 + tl.arange(0, BLOCK_F)
            x = tile(X, i, f, i < M, F, False).to(tl.float32)
            z = tile(Z, j, f, j < N, F, False).to(tl.float32)
            d = tl.sum(p[:, :, None] * x[:, None, :], 0) - total[:, None] * tl.sigmoid(z)
            ok = (j < N)[:, None] & (f < F)[None, :]
            tl.store(DZ + (b * N + j)[:, None] * F + f[None, :], d, mask=ok)
