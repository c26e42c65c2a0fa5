"""Kernels for elements of any number of features, built on matrix products of tiles.

Legend: M queries, N keys, F features. An owner is a row that a program keeps (A); the others (C)
are walked over.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.scores import first_features, scores, tile, tiles
from setwise.kernels.triton.thirds import all_short, product, thirds
from setwise.kernels.triton.weights import (
    HALF_RANGE,
    LN_2,
    LOG2_E,
    anchored,
    exponential,
    largest_weight,
    logarithm,
    of_query,
    of_set,
    rounded_weights,
    store_gradient,
    store_total,
    term,
    weighted_sum,
    weights_of_scores,
    without_weight,
)

# Queries that share a record; they divide the 64 or 128 of a tile. Fewer than those, for what the
# backward pass can leave out is what none of so many queries needs.
PEAK_QUERIES = tl.constexpr(32)
# Threads that share a row of a product: of every 8 columns, each has two neighbours.
SHARES = tl.constexpr(4)
# The fewest columns that a product has.
LEAST_COLUMNS = tl.constexpr(16)


@triton.jit
def logsumexp(
    Q, K, LONG, BIAS, LSE, PEAKS, WEIGHT, CENTRE, LOSS, M, N, keys_per_split, batch, factor,
    RECORDED: tl.constexpr, SUMMED: tl.constexpr, WEIGHTED: tl.constexpr, CENTRED: tl.constexpr,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_F: tl.constexpr,
    PEAK_KEYS: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr, BASE_2: tl.constexpr,
):  # fmt: skip
    """``LSE[split, b, i] = logsumexp_j(Q[b, i] . K[b, j] + BIAS[b, j])``, j in a split.

    Where PRECISION is "float32", Q and K are the `thirds` of queries and keys, F is the length of
    their rows, and LONG [b, i] says which queries have more than a high third.

    With SUMMED, LOSS [b, block of i] gets ``factor sum_i WEIGHT_i LSE_i``, and with CENTRED the LSE
    that is summed has CENTRE[b] added to it; LSE is then for gradients, see `without_weight`.

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
    PEAKS += 2 * b * tl.cdiv(M, PEAK_QUERIES) * tl.cdiv(N, PEAK_KEYS)
    start = split * keys_per_split
    end = tl.minimum(start + keys_per_split, N)
    first = block * BLOCK_A
    last = tl.minimum(first + BLOCK_A, M)
    if PRECISION == "float32" and all_short(LONG + b * M, first, last):
        top, total = _logsumexp(
            Q, K, BIAS, PEAKS, M, N, batch, block, start, end,
            RECORDED, F, BLOCK_A, BLOCK_C, BLOCK_F, PEAK_KEYS, PRECISION, EVEN, BASE_2, True,
        )  # fmt: skip
    else:
        top, total = _logsumexp(
            Q, K, BIAS, PEAKS, M, N, batch, block, start, end,
            RECORDED, F, BLOCK_A, BLOCK_C, BLOCK_F, PEAK_KEYS, PRECISION, EVEN, BASE_2, False,
        )  # fmt: skip
    lse = top + logarithm(total, BASE_2)
    i = block * BLOCK_A + tl.arange(0, BLOCK_A)
    if SUMMED:
        centre = tl.load(CENTRE + b) if CENTRED else 0.0
        nats = lse * LN_2 if BASE_2 else lse
        summed = weighted_sum(nats + centre, WEIGHT + b * M, i, i < M, WEIGHTED)
        tl.store(LOSS + tl.program_id(0), factor * summed)
        lse = without_weight(lse)
    tl.store(LSE + (split * batch + b) * M + i, lse, mask=i < M)


@triton.jit
def _logsumexp(
    Q, K, BIAS, PEAKS, M, N, batch, block, start, end,
    RECORDED: tl.constexpr, F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_F: tl.constexpr, PEAK_KEYS: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr,
    BASE_2: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    """The walk of a block of queries over the keys from start to end of their set.

    The largest score of each query, and the sum of exponentials relative to it. Each of the SHARES
    of a query has its own until the end: to compare them at every step, threads would have to wait.
    """
    i = block * BLOCK_A + tl.arange(0, BLOCK_A)
    q_apart, k_apart = tl.cast(batch, tl.int64) * M * F, tl.cast(batch, tl.int64) * N * F
    q_high, q_middle, q_low = first_features(Q, i, i < M, q_apart, F, BLOCK_F, PRECISION, SHORT)
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
            Q, K, i, j, i < M, (j < end) | EVEN, q_apart, k_apart, q_high, q_middle, q_low, False,
            F, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, SHORT,
        )  # fmt: skip
        if BASE_2:
            s = s * LOG2_E + (bias * LOG2_E)[None, :]
        else:
            s += bias[None, :]
        s = s.reshape(BLOCK_A, BLOCK_C // (2 * SHARES), SHARES, 2)
        highest = tl.max(tl.max(s, 3), 1)
        new_top = tl.maximum(top, highest)
        if RECORDED:
            row_top, best = tl.max(highest, 1), anchored(tl.max(new_top, 1))
            peaks = tl.where(i < M, row_top, float("-inf")).reshape(GROUPS, PEAK_QUERIES)
            lags = tl.where(i < M, row_top - best, float("-inf")).reshape(GROUPS, PEAK_QUERIES)
            # A record of several tiles is written after each of them; the last time counts.
            anew = j0 % PEAK_KEYS == 0
            peak = tl.maximum(tl.where(anew, float("-inf"), peak), tl.max(peaks, 1))
            lag = tl.maximum(tl.where(anew, float("-inf"), lag), tl.max(lags, 1))
            tl.store(PEAKS + j0 // PEAK_KEYS, peak, mask=group < groups)
            tl.store(LAGS + j0 // PEAK_KEYS, lag, mask=group < groups)
        anchor = anchored(new_top)
        total *= exponential(top - anchor, BASE_2)
        powers = exponential(s - anchor[:, None, :, None], BASE_2)
        total += tl.sum(tl.sum(powers, 3), 1)
        top = new_top
    best = tl.max(top, 1)
    total *= exponential(top - anchored(best)[:, None], BASE_2)
    return best, tl.sum(total, 1)


@triton.jit(do_not_specialize=["parts"])
def gradients(
    A, C, C_T, LONG, ALPHA, GAMMA, SCALE, WEIGHT, LARGEST, LIST, COUNT, DA, DBIAS, PARTS, TOTAL,
    n_a, n_c, others_per_split, batch, scale_set, factor, parts,
    OWNS_KEYS: tl.constexpr, SIGMOID: tl.constexpr, UNIT: tl.constexpr, WEIGHTED: tl.constexpr,
    WHOLE: tl.constexpr, TOTALLED: tl.constexpr, TRANSPOSED: tl.constexpr, SCALED: tl.constexpr,
    LISTED: tl.constexpr, F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr, HALVES: tl.constexpr, ROW: tl.constexpr,
    PRECISION: tl.constexpr, EVEN: tl.constexpr, BASE_2: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """Gradient of one side, whose elements A are the owners.

    Elements come in rows of length ROW. Where PRECISION is "float32", A and C are their `thirds`,
    and LONG [b, query] says which queries have more than a high third. QUERIES says whether
    programs whose queries are all "short" are run, the others ("long"), or "any". Of many features
    a kernel of both walks, as `logsumexp` is, would spill far more registers in each of them.

    With ``p_ac = exp(A_a . C_c + bias - lse)``, ``ALPHA`` and ``GAMMA`` hold the bias and the lse,
    whichever belongs to the owners and to the others. The incoming gradient of query i is
    ``g_i = factor SCALE[b scale_set] WEIGHT_i``, where UNIT means that there is no SCALE, and
    all weights are 1 unless WEIGHTED::

        owners are keys      DA_a = sum_c p_ac g_c C_c        DBIAS_a = sum_c p_ac g_c
        owners are queries   DA_a = g_a sum_c p_ac C_c        DBIAS_a = sum_c p_ac

    The weights of a query add up to 1 but for the rounding of scores and of the lse; dividing by
    their sum takes that error out again.

    With SIGMOID the bias is ``-sum softplus(A_a)`` and its share is added to DA. That and the
    division are done here if a walk is WHOLE; the pieces of one that is split are put together by
    `pieces.gradients`.

    In "float32" the second product, weights times C, is formed of thirds as well. Else it takes the
    tile of the first product, or another of its kind. But tensor cores take 32-bit operands only
    with the summed dimension contiguous: with TRANSPOSED, C_T is C transposed, [b, F, n_c].

    With SCALED, weights in float16 are brought into its range by the LARGEST |WEIGHT_i| (where the
    owners are queries, those are applied last, as the factor always is).

    There are no more than BLOCK_D features, or with HALVES = 2 twice as many: two sums take less
    room in registers than one of twice the width, whose product has to be there as a whole. For
    more features see `strips`.

    With LISTED only the tiles of others in LIST [b, block of owners, split, :COUNT] are visited,
    counted from the start of the split. A branch around the tiles left out would be slower than
    computing them: it would keep the steps of the loop from overlapping.

    EVEN says that no tile reaches beyond the last of the others. With BASE_2 the lse is in bits.

    With TOTALLED also ``TOTAL = sum PARTS``, whatever becomes of the program: see `store_total`.
    """
    if TOTALLED:
        store_total(PARTS, TOTAL, parts)
    blocks, split = tl.cdiv(n_a, BLOCK_A), tl.program_id(1)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    A, C, ALPHA, GAMMA = A + b * n_a * ROW, C + b * n_c * ROW, ALPHA + b * n_a, GAMMA + b * n_c
    a_apart = tl.cast(batch, tl.int64) * n_a * ROW
    C_T += b * n_c * F
    factor = of_set(SCALE, b * scale_set, factor, UNIT)
    WEIGHT += b * (n_c if OWNS_KEYS else n_a)
    a = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    a_ok = a < n_a
    d = tl.arange(0, BLOCK_D)
    start = split * others_per_split
    end = tl.minimum(start + others_per_split, n_c)
    if OWNS_KEYS:
        queries, first, last = n_c, start, end
    else:
        queries, first = n_a, tl.program_id(0) % blocks * BLOCK_A
        last = tl.minimum(first + BLOCK_A, n_a)
    tl.static_assert((QUERIES == "any") == (PRECISION != "float32"))
    if QUERIES != "any" and all_short(LONG + b * queries, first, last) != (QUERIES == "short"):
        return
    largest = largest_weight(LARGEST, OWNS_KEYS, WEIGHTED, SCALED)
    if LISTED:
        piece = tl.program_id(0) * tl.num_programs(1) + split
        LIST += piece.to(tl.int64) * tl.cdiv(others_per_split, BLOCK_C)
        COUNT += piece
    sums, upper, weight = _gradients(
        A, C, C_T, ALPHA, GAMMA, WEIGHT, LIST, COUNT,
        a, d, n_a, n_c, start, end, batch, largest,
        OWNS_KEYS, WEIGHTED, TRANSPOSED, SCALED, LISTED,
        F, BLOCK_A, BLOCK_C, BLOCK_F, BLOCK_D, HALVES, ROW, PRECISION, EVEN, BASE_2,
        QUERIES == "short",
    )  # fmt: skip
    if SCALED:
        sums *= 1.0 / HALF_RANGE
        weight *= 1.0 / HALF_RANGE
        sums *= largest
        weight *= largest
    if OWNS_KEYS:
        sums *= factor
        weight *= factor
        if HALVES == 2:
            upper *= factor
    at = (split * batch + b) * n_a
    g = tl.full([BLOCK_A], 1.0, tl.float32)
    if not OWNS_KEYS:
        g = of_query(WEIGHT, a, a_ok, factor, WEIGHTED)
        if WHOLE:
            g /= tl.where(weight > 0, weight, 1.0)
    store_gradient(
        sums, weight, g, A, DA + at * F, a, a_ok, d, a_apart,
        SIGMOID and WHOLE, OWNS_KEYS, F, ROW, PRECISION,
    )  # fmt: skip
    if HALVES == 2:
        store_gradient(
            upper, weight, g, A, DA + at * F, a, a_ok, d + BLOCK_D, a_apart,
            SIGMOID and WHOLE, OWNS_KEYS, F, ROW, PRECISION,
        )  # fmt: skip
    if not (SIGMOID and WHOLE):
        tl.store(DBIAS + at + a, weight, mask=a_ok)


@triton.jit
def _gradients(
    A, C, C_T, ALPHA, GAMMA, WEIGHT, LIST, COUNT,
    a, d, n_a, n_c, start, end, batch, largest,
    OWNS_KEYS: tl.constexpr, WEIGHTED: tl.constexpr, TRANSPOSED: tl.constexpr,
    SCALED: tl.constexpr, LISTED: tl.constexpr, F: tl.constexpr, BLOCK_A: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_F: tl.constexpr, BLOCK_D: tl.constexpr, HALVES: tl.constexpr,
    ROW: tl.constexpr, PRECISION: tl.constexpr, EVEN: tl.constexpr, BASE_2: tl.constexpr,
    SHORT: tl.constexpr,
):  # fmt: skip
    """The walk of the owners a over the others from start to end of their set.

    Sums of the features d and, if there are two HALVES, of the next BLOCK_D; and of the weights.
    """
    C_SHORT: tl.constexpr = SHORT and OWNS_KEYS
    A_SHORT: tl.constexpr = SHORT and not OWNS_KEYS
    a_apart, c_apart = tl.cast(batch, tl.int64) * n_a * ROW, tl.cast(batch, tl.int64) * n_c * ROW
    a_ok = a < n_a
    alpha = term(ALPHA, a, a_ok, not OWNS_KEYS)
    a_high, a_middle, a_low = first_features(A, a, a_ok, a_apart, ROW, BLOCK_F, PRECISION, A_SHORT)
    sums = tl.zeros([BLOCK_A, BLOCK_D], tl.float32)
    upper = sums
    weight = tl.zeros([BLOCK_A], tl.float32)
    weights = tl.zeros([BLOCK_A, LEAST_COLUMNS], tl.float32)
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
        gamma = term(GAMMA, c, c_ok, OWNS_KEYS)
        s, c_high, c_middle, c_low = scores(
            A, C, a, c, a_ok, c_ok, a_apart, c_apart, a_high, a_middle, a_low, OWNS_KEYS,
            ROW, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, SHORT,
        )  # fmt: skip
        p = weights_of_scores(
            s, alpha, gamma, WEIGHT, c, c_ok, largest, OWNS_KEYS, WEIGHTED, SCALED, BASE_2, ROW
        )  # fmt: skip
        if PRECISION == "float32":
            if not (BLOCK_D == BLOCK_F and ROW <= BLOCK_F):
                c_high, c_middle, c_low = tiles(
                    C, c, d, c_ok, c_apart, ROW, ROW % BLOCK_D == 0, C_SHORT
                )
            weight += tl.sum(p, 1)
            p_high, p_middle, p_low = thirds(p, True)
            sums += product(p_high, p_middle, p_low, c_high, c_middle, c_low, C_SHORT)
            if HALVES == 2:
                c_high, c_middle, c_low = tiles(
                    C, c, d + BLOCK_D, c_ok, c_apart, ROW, ROW % (2 * BLOCK_D) == 0, C_SHORT
                )
                upper += product(p_high, p_middle, p_low, c_high, c_middle, c_low, C_SHORT)
        else:
            if TRANSPOSED:
                ok = (d < F)[:, None] & c_ok[None, :]
                second = tl.trans(tl.load(C_T + d[:, None] * n_c + c[None, :], mask=ok, other=0.0))
            elif BLOCK_D == BLOCK_F and ROW <= BLOCK_F:
                second = c_high
            else:
                second = tile(C, c, d, c_ok, ROW, ROW % BLOCK_D == 0)
            rounded = rounded_weights(p, second.dtype, PRECISION)
            # The total of the weights as multiplied, for both shares of a gradient must cancel. By
            # tensor cores, which have time: what instructions they would take is what is scarce.
            ones = tl.full([BLOCK_C, LEAST_COLUMNS], 1.0, second.dtype)
            weights = tl.dot(rounded, ones, weights, input_precision=PRECISION)
            sums = tl.dot(rounded, second, sums, input_precision=PRECISION)
    if PRECISION != "float32":
        weight = tl.max(weights, 1)  # all columns are the same
    return sums, upper, weight


@triton.jit
def argmax(
    Q, K, BIAS, INDEX, M, N, batch,
    F: tl.constexpr, BLOCK_A: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK_F: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """``INDEX[b, i] = argmax_j(Q[b, i] . K[b, j] + BIAS[b, j])``, the first of equals.

    Where PRECISION is "float32", Q and K are the `thirds` of queries and keys, and F
    is the length of their rows.
    """
    blocks = tl.cdiv(M, BLOCK_A)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    Q, K, BIAS = Q + b * M * F, K + b * N * F, BIAS + b * N
    q_apart, k_apart = tl.cast(batch, tl.int64) * M * F, tl.cast(batch, tl.int64) * N * F
    i = tl.program_id(0) % blocks * BLOCK_A + tl.arange(0, BLOCK_A)
    q_high, q_middle, q_low = first_features(Q, i, i < M, q_apart, F, BLOCK_F, PRECISION, False)
    best = tl.full([BLOCK_A], float("-inf"), tl.float32)
    where = tl.zeros([BLOCK_A], tl.int32)
    for j0 in range(0, N, BLOCK_C):
        j = j0 + tl.arange(0, BLOCK_C)
        bias = term(BIAS, j, j < N, False)
        s, _, _, _ = scores(
            Q, K, i, j, i < M, j < N, q_apart, k_apart, q_high, q_middle, q_low, False,
            F, BLOCK_A, BLOCK_C, BLOCK_F, PRECISION, False,
        )  # fmt: skip
        s += bias[None, :]
        s = tl.where(s != s, float("inf"), s)  # NaN wins, so that it is seen
        top = tl.max(s, 1)
        first = tl.min(tl.where(s == top[:, None], j[None, :], 2147483647), 1)
        where = tl.where(top > best, first, where)
        best = tl.maximum(best, top)
    tl.store(INDEX + b * M + i, where.to(tl.int64), mask=i < M)
