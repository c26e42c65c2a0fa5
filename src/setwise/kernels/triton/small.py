"""Kernels for many small sets of Bernoulli elements: one program a set, one launch each way.

Legend: M targets, N outputs, F features. At this size a set loss costs what its launches cost, so
everything from the logits to the loss of a set, and back, happens in one.
"""

from __future__ import annotations

import triton
import triton.language as tl

MAX_ELEMENTS = 64
LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _tile(X, rows, columns, rows_ok, F: tl.constexpr):
    ok = rows_ok[:, None] & (columns < F)[None, :]
    return tl.load(X + rows[:, None] * F + columns[None, :], mask=ok, other=0.0)


@triton.jit
def forward(
    X, Z, VALID, WEIGHT, BIAS, LSE, LOSS, M, N,
    MASKED: tl.constexpr, WEIGHTED: tl.constexpr, F: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``BIAS_j = -sum softplus(Z_j)``, ``LSE_i = logsumexp_j(X_i . Z_j + BIAS_j)`` and the loss."""
    b = tl.program_id(0).to(tl.int64)
    X, Z, VALID, WEIGHT = X + b * M * F, Z + b * N * F, VALID + b * N, WEIGHT + b * M
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    s = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    bias = tl.zeros([BLOCK_N], tl.float32)
    for f0 in range(0, F, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        x, z = _tile(X, i, f, i < M, F), _tile(Z, j, f, j < N, F)
        s = tl.dot(x, tl.trans(z), s, input_precision=PRECISION)
        z = z.to(tl.float32)
        softplus = tl.maximum(z, 0.0) + LN_2 * tl.log2(1.0 + tl.exp2(-tl.abs(z) * LOG2_E))
        bias -= tl.sum(tl.where((f < F)[None, :], softplus, 0.0), 1)
    bias = tl.where(j < N, bias, float("-inf"))
    if MASKED:
        bias = tl.where(tl.load(VALID + j, mask=j < N, other=0) != 0, bias, float("-inf"))
    s += bias[None, :]
    top = tl.max(s, 1)
    lse = top + LN_2 * tl.log2(tl.sum(tl.exp2((s - top[:, None]) * LOG2_E), 1))
    tl.store(BIAS + b * N + j, bias, mask=j < N)
    tl.store(LSE + b * M + i, lse, mask=i < M)
    cost = tl.where(i < M, -lse, 0.0)
    if WEIGHTED:
        cost *= tl.load(WEIGHT + i, mask=i < M, other=0.0)
    tl.store(LOSS + b, tl.sum(cost, 0))


@triton.jit
def backward(
    X, Z, BIAS, LSE, SCALE, WEIGHT, DZ, M, N, scale_set, factor,
    WEIGHTED: tl.constexpr, F: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_F: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``DZ_j = sum_i g_i p_ij (X_i - sigmoid(Z_j))`` with ``g_i = factor SCALE[b] WEIGHT_i``."""
    b = tl.program_id(0).to(tl.int64)
    X, Z, DZ, WEIGHT = X + b * M * F, Z + b * N * F, DZ + b * N * F, WEIGHT + b * M
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    s = tl.zeros([BLOCK_N, BLOCK_M], tl.float32)
    for f0 in range(0, F, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        x, z = _tile(X, i, f, i < M, F), _tile(Z, j, f, j < N, F)
        s = tl.dot(z, tl.trans(x), s, input_precision=PRECISION)
    bias = tl.load(BIAS + b * N + j, mask=j < N, other=float("-inf"))
    lse = tl.load(LSE + b * M + i, mask=i < M, other=float("inf"))
    g = tl.load(SCALE + b * scale_set) * factor
    p = tl.exp2(((s + bias[:, None]) - lse[None, :]) * LOG2_E) * g
    if WEIGHTED:
        p *= tl.load(WEIGHT + i, mask=i < M, other=0.0)[None, :]
    total = tl.sum(p, 1)
    for f0 in range(0, F, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        x, z = _tile(X, i, f, i < M, F), _tile(Z, j, f, j < N, F)
        d = tl.dot(p.to(x.dtype), x, input_precision=PRECISION)
        d -= total[:, None] * tl.sigmoid(z.to(tl.float32))
        ok = (j < N)[:, None] & (f < F)[None, :]
        tl.store(DZ + j[:, None] * F + f[None, :], d, mask=ok)
