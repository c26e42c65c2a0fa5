"""What becomes of scores: weights, incoming gradients, weighted sums; shared by several kernels."""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.rounding import as_tf32
from setwise.kernels.triton.scores import tile

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# Weights of at most 1 times this stay within float16, which keeps 11 bits of them down to 2^-29.
HALF_RANGE = tl.constexpr(2.0**15)


@triton.jit
def weighted_sum(lse, WEIGHT, i, i_ok, WEIGHTED: tl.constexpr):
    """``sum_i WEIGHT_i lse_i``; all weights are 1 unless WEIGHTED."""
    if WEIGHTED:
        lse *= tl.load(WEIGHT + i, mask=i_ok, other=0.0)
    return tl.sum(tl.where(i_ok, lse, 0.0), 0)


@triton.jit
def incoming(SCALE, WEIGHT, i, i_ok, scale_row, factor, UNIT: tl.constexpr, WEIGHTED: tl.constexpr):
    """``factor SCALE_i WEIGHT_i``, the gradient of query i; with UNIT every scale is 1."""
    if UNIT:
        g = tl.where(i_ok, factor, 0.0)
    else:
        g = tl.load(SCALE + i * scale_row, mask=i_ok, other=0.0) * factor
    if WEIGHTED:
        g *= tl.load(WEIGHT + i, mask=i_ok, other=0.0)
    return g


@triton.jit
def largest_incoming(
    LARGEST, factor, OWNS_KEYS: tl.constexpr, UNIT: tl.constexpr, WEIGHTED: tl.constexpr,
    SCALED: tl.constexpr,
):  # fmt: skip
    """What weights are divided by to have them in [0, 1]; 1 unless they are SCALED with a g."""
    largest = tl.full([], 1.0, tl.float32)
    if SCALED and OWNS_KEYS:
        largest = tl.abs(factor)
        if WEIGHTED or not UNIT:
            largest *= tl.abs(tl.load(LARGEST))
        largest = tl.where(largest > 0, largest, 1.0)
    return largest


@triton.jit
def weights_of_scores(
    s, alpha, gamma, SCALE, WEIGHT, c, c_ok, scale_row, factor, largest,
    OWNS_KEYS: tl.constexpr, UNIT: tl.constexpr, WEIGHTED: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """The p_ac of `products.gradients`, times g_c if owners are keys; in range if SCALED."""
    # An lse of -inf belongs to a query without any admissible key: it weighs nothing.
    if OWNS_KEYS:
        lse = tl.where(gamma == float("-inf"), float("inf"), gamma)
        p = tl.exp2(((s + alpha[:, None]) - lse[None, :]) * LOG2_E)
        scale = incoming(SCALE, WEIGHT, c, c_ok, scale_row, factor, UNIT, WEIGHTED)
        if SCALED:
            # One after the other: of a small gradient, the quotient of the two would be infinite.
            scale = scale * (1.0 / largest) * HALF_RANGE
        p *= scale[None, :]
    else:
        lse = tl.where(alpha == float("-inf"), float("inf"), alpha)
        p = tl.exp2(((s + gamma[None, :]) - lse[:, None]) * LOG2_E)
        if SCALED:
            p *= HALF_RANGE
    return p


@triton.jit
def rounded_weights(p, kind: tl.constexpr, PRECISION: tl.constexpr):
    """Weights rounded as the tensor cores will see them: to 16 bits, or to the 19 of tf32."""
    if kind != tl.float32:
        return p.to(kind)
    elif PRECISION == "tf32":  # Triton compiles what follows a return
        return as_tf32(p)
    else:
        return p


@triton.jit
def store_gradient(
    sums, weight, g, A, DA, a, a_ok, d, a_apart,
    SIGMOID: tl.constexpr, OWNS_KEYS: tl.constexpr, F: tl.constexpr, ROW: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The features d of the gradient: the share of the bias added, times g.

    See `products.gradients`.
    """
    if SIGMOID:
        z = tile(A, a, d, a_ok, ROW, False).to(tl.float32)
        if PRECISION == "float32":
            rest = tile(A + a_apart, a, d, a_ok, ROW, False).to(tl.float32)
            z += rest + tile(A + 2 * a_apart, a, d, a_ok, ROW, False).to(tl.float32)
        sums -= weight[:, None] * tl.sigmoid(z)
    if not OWNS_KEYS:
        sums *= g[:, None]
    tl.store(DA + a[:, None] * F + d[None, :], sums, mask=a_ok[:, None] & (d < F)[None, :])
