"""The kernel for many small sets of Bernoulli elements: one program a set, one launch for all.

Legend: M targets, N outputs, F features. At this size a set loss costs what its launches cost, so
everything from the logits to the loss of a set happens in one, and the gradient as well: the
weights it needs are at hand, and the backward pass is left with a multiplication.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.products import add_product, as_multiplied

MAX_ELEMENTS = 64
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _tile(X, rows, columns, rows_ok, F: tl.constexpr):
    ok = rows_ok[:, None] & (columns < F)[None, :]
    return tl.load(X + rows[:, None] * F + columns[None, :], mask=ok, other=0.0)


@triton.jit
def set_cross_entropy(
    X, Z, VALID, WEIGHT, BIAS, LSE, LOSS, DZ, M, N, factor,
    MASKED: tl.constexpr, WEIGHTED: tl.constexpr, TERMS: tl.constexpr, GRADIENT: tl.constexpr,
    F: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """``LOSS = -sum_i w_i lse_i`` of a set, ``lse_i = logsumexp_j(X_i . Z_j - sum softplus(Z_j))``.

    With GRADIENT also ``DZ_j = factor sum_i w_i p_ij (X_i - sigmoid(Z_j))``; with TERMS the lse and
    the bias are kept for other gradients.
    """
    b = tl.program_id(0).to(tl.int64)
    X, Z, VALID, WEIGHT = X + b * M * F, Z + b * N * F, VALID + b * N, WEIGHT + b * M
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    s = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    lost = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    bias = tl.zeros([BLOCK_N], tl.float32)
    for f0 in range(0, F, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        x, z = _tile(X, i, f, i < M, F), _tile(Z, j, f, j < N, F)
        s, lost = add_product(x, z, s, lost, PRECISION)
        z = z.to(tl.float32)
        softplus = tl.maximum(z, 0.0) + LN_2 * tl.log2(1.0 + tl.exp2(-tl.abs(z) * LOG2_E))
        bias -= tl.sum(tl.where((f < F)[None, :], softplus, 0.0), 1)
    bias = tl.where(j < N, bias, float("-inf"))
    if MASKED:
        bias = tl.where(tl.load(VALID + j, mask=j < N, other=0) != 0, bias, float("-inf"))
    s += bias[None, :]
    top = tl.max(s, 1)
    lse = top + LN_2 * tl.log2(tl.sum(tl.exp2((s - top[:, None]) * LOG2_E), 1))
    w = tl.where(i < M, 1.0, 0.0)
    if WEIGHTED:
        w = tl.load(WEIGHT + i, mask=i < M, other=0.0)
    tl.store(LOSS + b, -tl.sum(w * lse, 0))
    if TERMS:
        tl.store(BIAS + b * N + j, bias, mask=j < N)
        tl.store(LSE + b * M + i, lse, mask=i < M)
    if GRADIENT:
        # Weights in [0, 1] until the end: a 16-bit product has no room for those of a large batch.
        # Their total is that of the rounded ones, so that both shares of a gradient cancel.
        largest = tl.max(w, 0)
        share = w / tl.where(largest > 0, largest, 1.0)
        p = tl.trans(tl.exp2((s - lse[:, None]) * LOG2_E) * share[:, None])
        p = as_multiplied(p, X.dtype.element_ty, PRECISION)
        total = tl.sum(p.to(tl.float32), 1)
        for f0 in range(0, F, BLOCK_F):
            f = f0 + tl.arange(0, BLOCK_F)
            x, z = _tile(X, i, f, i < M, F), _tile(Z, j, f, j < N, F)
            d = tl.dot(p, x, input_precision=PRECISION)
            d -= total[:, None] * tl.sigmoid(z.to(tl.float32))
            d *= factor * largest
            ok = (j < N)[:, None] & (f < F)[None, :]
            tl.store(DZ + (b * N + j)[:, None] * F + f[None, :], d, mask=ok)
