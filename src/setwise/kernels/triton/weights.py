"""What becomes of scores: weights, incoming gradients, sums; shared by several kernels."""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.rounding import as_tf32
from setwise.kernels.triton.scores import tile

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
# Weights of at most 1 times this range stay within float16, with 11 bits of them down to 2^-29.
FLOAT16_SCALE_BITS = tl.constexpr(15.0)
FLOAT16_SCALE = tl.constexpr(2.0**FLOAT16_SCALE_BITS.value)
# Up to so many features, scores of logits within float16 are below 2^24 bits, and so is the lse:
# 177 times 65504 / log(2). The difference to FLOAT16_SCALE_BITS is then exact.
NEAR_FEATURES = tl.constexpr(176)
# Parts of a total that are loaded in one step: up to 16 by each thread, which fit in registers.
PARTS_AT_ONCE = tl.constexpr(512)
# One program adds them up, step after step; PyTorch's sum has many programs for more than that.
MAX_PARTS = 4096


@triton.jit
def weighted_sum(lse, WEIGHT, i, i_ok, WEIGHTED: tl.constexpr):
    """``sum_i WEIGHT_i lse_i``; all weights are 1 unless WEIGHTED."""
    if WEIGHTED:
        lse *= tl.load(WEIGHT + i, mask=i_ok, other=0.0)
    return tl.sum(tl.where(i_ok, lse, 0.0), 0)


@triton.jit
def store_total(PARTS, TOTAL, parts):
    """The sum of what an earlier launch has left, by program (0, 0), which every grid has.

    In any kernel that comes after that launch; a launch of its own takes longer to start.
    """
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        total = tl.zeros([PARTS_AT_ONCE], tl.float32)
        for first in range(0, parts, PARTS_AT_ONCE):
            part = first + tl.arange(0, PARTS_AT_ONCE)
            total += tl.load(PARTS + part, mask=part < parts, other=0.0)
        tl.store(TOTAL, tl.sum(total, 0))


@triton.jit
def exponential(x, BASE_2: tl.constexpr):
    """``2^x``, or else ``e^x``."""
    return tl.exp2(x) if BASE_2 else tl.exp2(x * LOG2_E)


@triton.jit
def logarithm(x, BASE_2: tl.constexpr):
    """Its inverse: in bits, or else in natural units."""
    return tl.log2(x) if BASE_2 else tl.log2(x) * LN_2


@triton.jit
def finite_max(top):
    """The maximum that scores are taken relative to: ``top``, or 0 if they are all masked."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def lse_for_backward(lse):
    """The lse of a query without any admissible key, -inf, made +inf: its weights are then 0.

    Gradients expect that of an lse; they would have to ask for every pair.
    """
    return tl.where(lse == float("-inf"), float("inf"), lse)


@triton.jit
def store_terms(TERMS, top, above, i, M):
    """``top + above`` of M queries, rounded, and what was lost by that: the two rows of TERMS.

    A sum of large and small, as of a score and a logarithm; Dekker, "A floating-point technique for
    extending the available precision" (Numerische Mathematik 1971).
    """
    lse = top + above
    lost = tl.where(tl.abs(lse) < float("inf"), above - (lse - top), 0.0)
    tl.store(TERMS + i, lse, mask=i < M)
    tl.store(TERMS + M + i, lost, mask=i < M)


@triton.jit
def store_weight(GIVEN, WEIGHT, top, total, i, M, WEIGHTED: tl.constexpr, BASE_2: tl.constexpr):
    """The lse as it is rounded, of ``top + log total``, and in GIVEN the weights of M queries.

    Gradients take weights of pairs relative to that lse; to be so to the exact one, those of a
    query are multiplied by what was lost of it, see `store_terms`.
    """
    above = logarithm(total, BASE_2)
    lse = top + above
    lost = tl.where(tl.abs(lse) < float("inf"), above - (lse - top), 0.0)
    given = query_grad(WEIGHT, i, i < M, 1.0, WEIGHTED)
    tl.store(GIVEN + i, given * exponential(-lost, BASE_2), mask=i < M)
    return lse


@triton.jit
def term(TERM, i, i_ok, LSE: tl.constexpr):
    """The lse of queries or else the bias of keys; where there is none, what makes weights 0."""
    return tl.load(TERM + i, mask=i_ok, other=float("inf") if LSE else float("-inf"))


@triton.jit
def set_grad(SCALE, at, factor, UNIT: tl.constexpr):
    """What the gradients of all queries of a set have in common; with UNIT the factor alone."""
    if not UNIT:
        factor *= tl.load(SCALE + at).to(tl.float32)
    return factor


@triton.jit
def query_grad(WEIGHT, i, i_ok, factor, WEIGHTED: tl.constexpr):
    """``factor WEIGHT_i``, the gradient of query i; all weights are 1 unless WEIGHTED."""
    g = tl.where(i_ok, factor, 0.0)
    if WEIGHTED:
        g *= tl.load(WEIGHT + i, mask=i_ok, other=0.0)
    return g


@triton.jit
def largest_weight(
    LARGEST, ROWS_ARE_KEYS: tl.constexpr, WEIGHTED: tl.constexpr, SCALED: tl.constexpr
):  # fmt: skip
    """What the WEIGHT of queries is divided by to have it in [-1, 1]; 1 unless SCALED."""
    largest = tl.full([], 1.0, tl.float32)
    if SCALED and ROWS_ARE_KEYS and WEIGHTED:
        largest = tl.load(LARGEST)
        largest = tl.where(largest > 0, largest, 1.0)
    return largest


@triton.jit
def weights_of_scores(
    s, alpha, gamma, WEIGHT, c, c_ok, largest, ROWS_ARE_KEYS: tl.constexpr, WEIGHTED: tl.constexpr,
    SCALED: tl.constexpr, BASE_2: tl.constexpr, F_PADDED: tl.constexpr,
):  # fmt: skip
    """The p_ac of `matmul.gradients`; if rows are keys, times the weight of c.

    If SCALED, times FLOAT16_SCALE, as part of the exponent: every operation here is one for each
    pair. With BASE_2 the lse is in bits. Scores, of F_PADDED features, are computed as they were,
    so that the weight of a query's only key is 1, however large its score.
    """
    bias, lse = (alpha, gamma) if ROWS_ARE_KEYS else (gamma, alpha)
    bits: tl.constexpr = FLOAT16_SCALE_BITS if SCALED else 0.0
    BEFORE: tl.constexpr = BASE_2 and F_PADDED <= NEAR_FEATURES
    if BASE_2:
        s *= LOG2_E
        bias *= LOG2_E
    if BEFORE:
        lse -= bits
    bias = bias[:, None] if ROWS_ARE_KEYS else bias[None, :]
    lse = lse[None, :] if ROWS_ARE_KEYS else lse[:, None]
    s = (s + bias) - lse
    if not BASE_2:
        s = s * LOG2_E + bits
    elif SCALED and not BEFORE:
        s += bits
    p = tl.exp2(s)
    if ROWS_ARE_KEYS and WEIGHTED:
        p *= query_grad(WEIGHT, c, c_ok, 1.0 / largest, WEIGHTED)[None, :]
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
    sums, weight, g, A, DA, a, a_ok, d, stride_a,
    SIGMOID: tl.constexpr, ROWS_ARE_KEYS: tl.constexpr, F: tl.constexpr, F_PADDED: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The features d of the gradient: the share of the bias added, times g.

    See `matmul.gradients`.
    """
    if SIGMOID:
        z = tile(A, a, d, a_ok, F_PADDED, False).to(tl.float32)
        if PRECISION == "float32":
            rest = tile(A + stride_a, a, d, a_ok, F_PADDED, False).to(tl.float32)
            z += rest + tile(A + 2 * stride_a, a, d, a_ok, F_PADDED, False).to(tl.float32)
        sums -= weight[:, None] * tl.sigmoid(z)
    if not ROWS_ARE_KEYS:
        sums *= g[:, None]
    tl.store(DA + a[:, None] * F + d[None, :], sums, mask=a_ok[:, None] & (d < F)[None, :])
