"""Kernels for elements of any number of features, built on matrix products of tiles.

Legend: M queries, N keys, F features. Of the score matrix, or of its transpose, a program keeps a
block of rows (A) and loops over the columns (C).
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.bf16x6 import all_bf16, dot_bf16x6, split_bf16x3
from setwise.kernels.triton.scores import (
    MAX_COMPARED,
    add_compared,
    add_pulls,
    first_features,
    scores,
    store_pulls,
    tile,
    tiles,
)
from setwise.kernels.triton.weights import (
    FLOAT16_SCALE,
    LN_2,
    LOG2_E,
    exponential,
    finite_max,
    largest_weight,
    logarithm,
    lse_for_backward,
    query_grad,
    rounded_weights,
    set_grad,
    store_gradient,
    store_terms,
    store_total,
    store_weight,
    term,
    weighted_sum,
    weights_of_scores,
)

# Queries that share a record; they divide the 64 or 128 of a tile. Fewer than those, for what the
# backward pass can leave out is what none of so many queries needs.
PEAK_QUERIES = tl.constexpr(32)
# Threads that share a row of a product: of every 8 columns, each has two neighbours.
SHARES = tl.constexpr(4)
# The fewest columns that a product has.
MIN_COLUMNS = tl.constexpr(16)


@triton.jit
def logsumexp(
    Q, K, NOT_BF16, BIAS, LSE, PEAKS, WEIGHT, CENTRE, LOSS, TERMS, Q_APART, K_APART, SHARPNESS,
    M, N, keys_per_split, batch, factor, q_stride, k_stride,
    RECORDED: tl.constexpr, SUMMED: tl.constexpr, WEIGHTED: tl.constexpr, CENTRED: tl.constexpr,
    TERMED: tl.constexpr, F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_F: tl.constexpr, PEAK_KEYS: tl.constexpr, PRECISION: tl.constexpr,
    EVEN: tl.constexpr, BASE_2: tl.constexpr,
):  # fmt: skip
    """``LSE[split, b, i] = logsumexp_j(Q[b, i] . K[b, j] + BIAS[b, j])``, j in a split.

    Where PRECISION is "float32", Q and K are the parts of queries and keys (`bf16x6`), F is padded,
    and NOT_BF16 [b, i] says which queries are not exact in bfloat16.

    With SUMMED, LOSS [b, block of i] gets ``factor sum_i WEIGHT_i LSE_i``, and with CENTRED the LSE
    that is summed has CENTRE[b] added to it; LSE is then for gradients, see `lse_for_backward`.
    With TERMED, TERMS [split, b, 2, i] gets the LSE and what was lost when it was rounded; if also
    SUMMED, TERMS [b, i] gets the weight of `weights.store_weight`.

    Another D features, in the columns Q_APART and K_APART, are compared: `scores.add_compared`.

    EVEN says that no tile reaches beyond the last key. With BASE_2, LSE and PEAKS are in bits (LOSS
    is not), which takes one operation less for each pair.

    With RECORDED, PEAKS [b, 2, PEAK_QUERIES of i, PEAK_KEYS of j] gets the largest of so many
    scores, and the largest when each is taken relative to the best that its query has met so far.
    No two splits may share a record.
    """
    blocks, split = tl.cdiv(M, BLOCK_A), tl.program_id(1)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    Q, K, BIAS = Q + b * M * F, K + b * N * F, BIAS + b * N
    Q_APART, K_APART = Q_APART + b * D * q_stride, K_APART + b * D * k_stride
    SHARPNESS += b * D
    PEAKS += 2 * b * tl.cdiv(M, PEAK_QUERIES) * tl.cdiv(N, PEAK_KEYS)
    start = split * keys_per_split
    end = tl.minimum(start + keys_per_split, N)
    first = block * BLOCK_A
    last = tl.minimum(first + BLOCK_A, M)
    if PRECISION == "float32" and all_bf16(NOT_BF16 + b * M, first, last):
        top, total = _logsumexp(
            Q, K, BIAS, PEAKS, Q_APART, K_APART, SHARPNESS,
            M, N, batch, block, start, end, q_stride, k_stride,
            RECORDED, F, D, BLOCK_A, BLOCK_C, BLOCK_F, PEAK_KEYS, PRECISION, EVEN, BASE_2, True,
        )  # fmt: skip
    else:
        top, total = _logsumexp(
            Q, K, BIAS, PEAKS, Q_APART, K_APART, SHARPNESS,
            M, N, batch, block, start, end, q_stride, k_stride,
            RECORDED, F, D, BLOCK_A, BLOCK_C, BLOCK_F, PEAK_KEYS, PRECISION, EVEN, BASE_2, False,
        )  # fmt: skip
    lse = top + logarithm(total, BASE_2)
    i = block * BLOCK_A + tl.arange(0, BLOCK_A)
    if SUMMED:
        centre = tl.load(CENTRE + b) if CENTRED else 0.0
        nats = lse * LN_2 if BASE_2 else lse
        summed = weighted_sum(nats + centre, WEIGHT + b * M, i, i < M, WEIGHTED)
        tl.store(LOSS + tl.program_id(0), factor * summed)
        if TERMED:
            lse = store_weight(TERMS + b * M, WEIGHT + b * M, top, total, i, M, WEIGHTED, BASE_2)
        lse = lse_for_backward(lse)
    elif TERMED:
        store_terms(TERMS + (split * batch + b) * 2 * M, top, logarithm(total, BASE_2), i, M)
    tl.store(LSE + (split * batch + b) * M + i, lse, mask=i < M)


@triton.jit
def _logsumexp(
    Q, K, BIAS, PEAKS, Q_APART, K_APART, SHARPNESS,
    M, N, batch, block, start, end, q_stride, k_stride,
    RECORDED: tl.constexpr, F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_F: tl.constexpr, PEAK_KEYS: tl.constexpr, PRECISION: tl.constexpr,
    EVEN: tl.constexpr, BASE_2: tl.constexpr, IS_BF16: tl.constexpr,
):  # fmt: skip
    """The loop of a block of queries over the keys from start to end of their set.

    The largest score of each query, and the sum of exponentials relative to it. Each of the SHARES
    of a query has its own until the end: to compare them at every step, threads would have to wait.
    """
    i = block * BLOCK_A + tl.arange(0, BLOCK_A)
    stride_q, stride_k = tl.cast(batch, tl.int64) * M * F, tl.cast(batch, tl.int64) * N * F
    q_high, q_middle, q_low = first_features(Q, i, i < M, stride_q, F, BLOCK_F, PRECISION, IS_BF16)
    top = tl.full([BLOCK_A, SHARES], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_A, SHARES], tl.float32)
    if RECORDED:
        GROUPS: tl.constexpr = BLOCK_A // PEAK_QUERIES
        group = block * GROUPS + tl.arange(0, GROUPS)
        groups, steps = tl.cdiv(M, PEAK_QUERIES), tl.cdiv(N, PEAK_KEYS)
        PEAKS += group * steps
        LAGS = PEAKS + groups * steps
        peak = tl.full([GROUPS], float("-inf"), tl.float32)
        lag = peak
    j = start + tl.arange(0, BLOCK_C)
    next_bias = term(BIAS, j, j < end, False)
    for j0 in range(start, end, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        # A step ahead, or it would be waited for: only what products read is, without being asked.
        bias = next_bias
        next_bias = term(BIAS, j + BLOCK_C, j + BLOCK_C < end, False)
        s, _, _, _ = scores(
            Q, K, i, j, i < M, (j < end) | EVEN, stride_q, stride_k, q_high, q_middle, q_low, False,
            F, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, IS_BF16,
        )  # fmt: skip
        s = add_compared(
            s, Q_APART, K_APART, SHARPNESS, i, j, i < M, j < end, q_stride, k_stride, D
        )
        if BASE_2:
            s = s * LOG2_E + (bias * LOG2_E)[None, :]
        else:
            s += bias[None, :]
        s = s.reshape(BLOCK_A, BLOCK_C // (2 * SHARES), SHARES, 2)
        highest = tl.max(tl.max(s, 3), 1)
        new_top = tl.maximum(top, highest)
        if RECORDED:
            row_top, best = tl.max(highest, 1), finite_max(tl.max(new_top, 1))
            peaks = tl.where(i < M, row_top, float("-inf")).reshape(GROUPS, PEAK_QUERIES)
            lags = tl.where(i < M, row_top - best, float("-inf")).reshape(GROUPS, PEAK_QUERIES)
            # A record of several tiles is written after each of them; the last time counts.
            anew = j0 % PEAK_KEYS == 0
            peak = tl.maximum(tl.where(anew, float("-inf"), peak), tl.max(peaks, 1))
            lag = tl.maximum(tl.where(anew, float("-inf"), lag), tl.max(lags, 1))
            tl.store(PEAKS + j0 // PEAK_KEYS, peak, mask=group < groups)
            tl.store(LAGS + j0 // PEAK_KEYS, lag, mask=group < groups)
        anchor = finite_max(new_top)
        total *= exponential(top - anchor, BASE_2)
        powers = exponential(s - anchor[:, None, :, None], BASE_2)
        total += tl.sum(tl.sum(powers, 3), 1)
        top = new_top
    best = tl.max(top, 1)
    total *= exponential(top - finite_max(best)[:, None], BASE_2)
    return best, tl.sum(total, 1)


@triton.jit(do_not_specialize=["parts"])
def gradients(
    A, C, C_T, NOT_BF16, ALPHA, GAMMA, SCALE, WEIGHT, LARGEST, LIST, COUNT, DA, DBIAS, PARTS, TOTAL,
    A_APART, C_APART, SHARPNESS, DAPART,
    n_a, n_c, columns_per_split, batch, scale_set, factor, parts, a_stride, c_stride,
    ROWS_ARE_KEYS: tl.constexpr, SIGMOID: tl.constexpr, UNIT: tl.constexpr, WEIGHTED: tl.constexpr,
    WHOLE: tl.constexpr, TOTALLED: tl.constexpr, TRANSPOSED: tl.constexpr, SCALED: tl.constexpr,
    LISTED: tl.constexpr, F: tl.constexpr, D: tl.constexpr, BLOCK_A: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr, HALVES: tl.constexpr,
    F_PADDED: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr, BASE_2: tl.constexpr,
    QUERIES: tl.constexpr,
):  # fmt: skip
    """Gradient of one side, whose elements A are the rows.

    Elements come with F_PADDED features. Where PRECISION is "float32", A and C are their parts, see
    `bf16x6`, and NOT_BF16 [b, query] says which queries are not exact in bfloat16. QUERIES says
    which programs are run: those whose queries are all exact ("bf16"), the others ("float32"), or
    "any". Of many features a kernel of both loops, as `logsumexp` is, would spill far more
    registers in each of them.

    With ``p_ac = exp(A_a . C_c + bias - lse)``, ``ALPHA`` and ``GAMMA`` hold the bias and the lse,
    whichever belongs to the rows and to the columns. The incoming gradient of query i is
    ``g_i = factor SCALE[b scale_set] WEIGHT_i``, where UNIT means that there is no SCALE, and
    all weights are 1 unless WEIGHTED::

        rows are keys      DA_a = sum_c p_ac g_c C_c        DBIAS_a = sum_c p_ac g_c
        rows are queries   DA_a = g_a sum_c p_ac C_c        DBIAS_a = sum_c p_ac

    The weights of a query add up to 1 but for the rounding of scores and of the lse; dividing by
    their sum takes that error out again.

    With SIGMOID the bias is ``-sum softplus(A_a)`` and its share is added to DA. That and the
    division are done here if a loop is WHOLE; the partial results of one that is split are put
    together by `combine.gradients`.

    In "float32" the second product, weights times C, is formed by `bf16x6` as well. Else it takes
    the tile of the first product, or another of its kind. But tensor cores take 32-bit operands
    only with the summed dimension contiguous: with TRANSPOSED, C_T is C transposed, [b, F, n_c].

    With SCALED, weights in float16 are brought into its range by the LARGEST |WEIGHT_i| (where the
    rows are queries, those are applied last, as the factor always is).

    There are no more than BLOCK_D features, or with HALVES = 2 twice as many: two sums take less
    room in registers than one of twice the width, whose product has to be there as a whole. For
    more features see `panels`.

    With LISTED only the tiles of columns in LIST [b, block of rows, split, :COUNT] are visited,
    counted from the start of the split. A branch around the tiles left out would be slower than
    computing them: it would keep the steps of the loop from overlapping.

    EVEN says that no tile reaches beyond the last column. With BASE_2 the lse is in bits.

    Another D features, of `scores.add_compared`, get their gradient in DAPART [b, a, D]. With
    TOTALLED also ``TOTAL = sum PARTS``, whatever becomes of the program: see `store_total`.
    """
    if TOTALLED:
        store_total(PARTS, TOTAL, parts)
    blocks, split = tl.cdiv(n_a, BLOCK_A), tl.program_id(1)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    A, C = A + b * n_a * F_PADDED, C + b * n_c * F_PADDED
    ALPHA, GAMMA = ALPHA + b * n_a, GAMMA + b * n_c
    stride_a = tl.cast(batch, tl.int64) * n_a * F_PADDED
    C_T += b * n_c * F
    A_APART, C_APART = A_APART + b * D * a_stride, C_APART + b * D * c_stride
    SHARPNESS += b * D
    factor = set_grad(SCALE, b * scale_set, factor, UNIT)
    WEIGHT += b * (n_c if ROWS_ARE_KEYS else n_a)
    a = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    a_ok = a < n_a
    d = tl.arange(0, BLOCK_D)
    start = split * columns_per_split
    end = tl.minimum(start + columns_per_split, n_c)
    if ROWS_ARE_KEYS:
        queries, first, last = n_c, start, end
    else:
        queries, first = n_a, tl.program_id(0) % blocks * BLOCK_A
        last = tl.minimum(first + BLOCK_A, n_a)
    tl.static_assert((QUERIES == "any") == (PRECISION != "float32"))
    if QUERIES != "any" and all_bf16(NOT_BF16 + b * queries, first, last) != (QUERIES == "bf16"):
        return
    largest = largest_weight(LARGEST, ROWS_ARE_KEYS, WEIGHTED, SCALED)
    if LISTED:
        listed = tl.program_id(0) * tl.num_programs(1) + split
        LIST += listed.to(tl.int64) * tl.cdiv(columns_per_split, BLOCK_C)
        COUNT += listed
    sums, upper, weight, pulls = _gradients(
        A, C, C_T, ALPHA, GAMMA, WEIGHT, LIST, COUNT, A_APART, C_APART, SHARPNESS,
        a, d, n_a, n_c, start, end, batch, largest, a_stride, c_stride,
        ROWS_ARE_KEYS, WEIGHTED, TRANSPOSED, SCALED, LISTED,
        F, D, BLOCK_A, BLOCK_C, BLOCK_F, BLOCK_D, HALVES, F_PADDED, PRECISION, EVEN, BASE_2,
        QUERIES == "bf16",
    )  # fmt: skip
    if SCALED:
        sums *= 1.0 / FLOAT16_SCALE
        weight *= 1.0 / FLOAT16_SCALE
        sums *= largest
        weight *= largest
    if ROWS_ARE_KEYS:
        sums *= factor
        weight *= factor
        if HALVES == 2:
            upper *= factor
    at = (split * batch + b) * n_a
    g = tl.full([BLOCK_A], 1.0, tl.float32)
    if not ROWS_ARE_KEYS:
        g = query_grad(WEIGHT, a, a_ok, factor, WEIGHTED)
        if WHOLE:
            g /= tl.where(weight > 0, weight, 1.0)
    store_gradient(
        sums, weight, g, A, DA + at * F, a, a_ok, d, stride_a,
        SIGMOID and WHOLE, ROWS_ARE_KEYS, F, F_PADDED, PRECISION,
    )  # fmt: skip
    if HALVES == 2:
        store_gradient(
            upper, weight, g, A, DA + at * F, a, a_ok, d + BLOCK_D, stride_a,
            SIGMOID and WHOLE, ROWS_ARE_KEYS, F, F_PADDED, PRECISION,
        )  # fmt: skip
    if D > 0:
        tl.static_assert(ROWS_ARE_KEYS and not SCALED)  # queries would be divided by their weight
        store_pulls(DAPART + at * D, pulls, factor, SHARPNESS, a, a_ok, D)
    if not (SIGMOID and WHOLE):
        tl.store(DBIAS + at + a, weight, mask=a_ok)


@triton.jit
def _gradients(
    A, C, C_T, ALPHA, GAMMA, WEIGHT, LIST, COUNT, A_APART, C_APART, SHARPNESS,
    a, d, n_a, n_c, start, end, batch, largest, a_stride, c_stride,
    ROWS_ARE_KEYS: tl.constexpr, WEIGHTED: tl.constexpr, TRANSPOSED: tl.constexpr,
    SCALED: tl.constexpr, LISTED: tl.constexpr, F: tl.constexpr, D: tl.constexpr,
    BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr,
    HALVES: tl.constexpr, F_PADDED: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr,
    BASE_2: tl.constexpr, IS_BF16: tl.constexpr,
):  # fmt: skip
    """The loop of the rows a over the columns from start to end of their set.

    Sums of the features d and, if there are two HALVES, of the next BLOCK_D; of the weights; and of
    the differences of the D features that are compared.
    """
    C_IS_BF16: tl.constexpr = IS_BF16 and ROWS_ARE_KEYS
    A_IS_BF16: tl.constexpr = IS_BF16 and not ROWS_ARE_KEYS
    stride_a, stride_c = (
        tl.cast(batch, tl.int64) * n_a * F_PADDED,
        tl.cast(batch, tl.int64) * n_c * F_PADDED,
    )
    a_ok = a < n_a
    alpha = term(ALPHA, a, a_ok, not ROWS_ARE_KEYS)
    a_high, a_middle, a_low = first_features(
        A, a, a_ok, stride_a, F_PADDED, BLOCK_F, PRECISION, A_IS_BF16
    )
    sums = tl.zeros([BLOCK_A, BLOCK_D], tl.float32)
    upper = sums
    weight = tl.zeros([BLOCK_A], tl.float32)
    weights = tl.zeros([BLOCK_A, MIN_COLUMNS], tl.float32)
    pulls = tl.zeros([BLOCK_A, MAX_COMPARED], tl.float32)
    if LISTED:
        first, last = 0, tl.load(COUNT)
        upcoming = tl.load(LIST, mask=last > 0, other=0)
    else:
        first, last = start, end
    for step in range(first, last, 1 if LISTED else BLOCK_C):
        if LISTED:
            c0 = start + upcoming * BLOCK_C
            # A step ahead: an address that is itself loaded would take a stage of the pipeline.
            upcoming = tl.load(LIST + step + 1, mask=step + 1 < last, other=0)
        else:
            c0 = step
        c = c0 + tl.arange(0, BLOCK_C)
        c_ok = (c < end) | EVEN
        gamma = term(GAMMA, c, c_ok, ROWS_ARE_KEYS)
        s, c_high, c_middle, c_low = scores(
            A, C, a, c, a_ok, c_ok, stride_a, stride_c, a_high, a_middle, a_low, ROWS_ARE_KEYS,
            F_PADDED, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, IS_BF16,
        )  # fmt: skip
        s = add_compared(s, A_APART, C_APART, SHARPNESS, a, c, a_ok, c < end, a_stride, c_stride, D)
        p = weights_of_scores(
            s, alpha, gamma, WEIGHT, c, c_ok, largest,
            ROWS_ARE_KEYS, WEIGHTED, SCALED, BASE_2, F_PADDED,
        )  # fmt: skip
        pulls = add_pulls(pulls, p, A_APART, C_APART, a, c, a_ok, c < end, a_stride, c_stride, D)
        if PRECISION == "float32":
            if not (BLOCK_D == BLOCK_F and F_PADDED <= BLOCK_F):
                c_high, c_middle, c_low = tiles(
                    C, c, d, c_ok, stride_c, F_PADDED, F_PADDED % BLOCK_D == 0, C_IS_BF16
                )
            weight += tl.sum(p, 1)
            p_high, p_middle, p_low = split_bf16x3(p, True)
            sums += dot_bf16x6(p_high, p_middle, p_low, c_high, c_middle, c_low, C_IS_BF16)
            if HALVES == 2:
                EVEN_HALVES: tl.constexpr = F_PADDED % (2 * BLOCK_D) == 0
                c_high, c_middle, c_low = tiles(
                    C, c, d + BLOCK_D, c_ok, stride_c, F_PADDED, EVEN_HALVES, C_IS_BF16
                )
                upper += dot_bf16x6(p_high, p_middle, p_low, c_high, c_middle, c_low, C_IS_BF16)
        else:
            if TRANSPOSED:
                ok = (d < F)[:, None] & c_ok[None, :]
                second = tl.trans(tl.load(C_T + d[:, None] * n_c + c[None, :], mask=ok, other=0.0))
            elif BLOCK_D == BLOCK_F and F_PADDED <= BLOCK_F:
                second = c_high
            else:
                second = tile(C, c, d, c_ok, F_PADDED, F_PADDED % BLOCK_D == 0)
            rounded = rounded_weights(p, second.dtype, PRECISION)
            # The total of the weights as multiplied, for both shares of a gradient must cancel. By
            # tensor cores, which have time: what instructions they would take is what is scarce.
            ones = tl.full([BLOCK_C, MIN_COLUMNS], 1.0, second.dtype)
            weights = tl.dot(rounded, ones, weights, input_precision=PRECISION)
            sums = tl.dot(rounded, second, sums, input_precision=PRECISION)
    if PRECISION != "float32":
        weight = tl.max(weights, 1)  # all columns are the same
    return sums, upper, weight, pulls
