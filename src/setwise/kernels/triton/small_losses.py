"""One kernel for any set loss over many small sets: one program a set, from outputs to gradient.

Legend: M targets i, N outputs j, F features f. At this size a loss costs what its launches cost.
Costs of all pairs are a tile in registers, to which one feature after the other adds its share: by
multiply-adds, which are exact in float32, and with terms of one sign, so that nothing cancels.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.families import (
    BERNOULLI,
    CATEGORICAL,
    CHOICE,
    SQUARE,
    attraction,
    choice_terms,
    logs,
    repulsion,
    temperature_of,
)
from setwise.kernels.triton.weights import LN_2, LOG2_E

# Elements of a set, features of an element at most.
MAX_ELEMENTS, MAX_FEATURES = 64, 256


@triton.jit
def _terms_of_outputs(
    Z, j, j_ok, FROM: tl.constexpr, W: tl.constexpr, PADDED: tl.constexpr, KIND: tl.constexpr,
    F: tl.constexpr,
):  # fmt: skip
    """The `choice_terms` of a block; classes are counted as features of the element."""
    if KIND == CATEGORICAL or KIND == CHOICE:  # noqa: SIM109
        f = tl.arange(0, PADDED)
        ok = j_ok[:, None] & (f < W)[None, :]
        z = tl.load(Z + j[:, None] * F + (FROM + f)[None, :], mask=ok, other=0.0)
        return choice_terms(z, FROM + f, ok, KIND)
    else:
        nothing = tl.zeros([j.shape[0]], tl.float32)
        return nothing, j, nothing


@triton.jit
def add_costs(
    h, X, Z, number, i, j, M, N, KIND: tl.constexpr, FROM: tl.constexpr, W: tl.constexpr,
    PADDED: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """``h`` and the costs of a block, shape [targets, outputs]."""
    total, best, others = _terms_of_outputs(Z, j, j < N, FROM, W, PADDED, KIND, F)
    for f in range(FROM, FROM + W):
        x = tl.load(X + i * F + f, mask=i < M, other=0.0)
        z = tl.load(Z + j * F + f, mask=j < N, other=0.0)
        if KIND == SQUARE:
            apart = x[:, None] - z[None, :]
            h += (number * apart) * apart
        else:
            log_p, log_not_p = logs(z, f, total, best, others, KIND)
            h -= (number * x)[:, None] * log_p[None, :]
            h -= (number * (1.0 - x))[:, None] * log_not_p[None, :]
    return h


@triton.jit
def _sums(X, Z, p, i, j, f, M, N, F: tl.constexpr):
    """``sum_i p_ij x_if`` of feature f, and the feature of the outputs."""
    x = tl.load(X + i * F + f, mask=i < M, other=0.0)
    z = tl.load(Z + j * F + f, mask=j < N, other=0.0)
    return tl.sum(p * x[:, None], 0), z


@triton.jit
def store_gradient(
    X, Z, DZ, p, number, i, j, M, N, KIND: tl.constexpr, FROM: tl.constexpr, W: tl.constexpr,
    PADDED: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """``DZ_j = sum_i p_ij dH_ij/dz_j`` of a block."""
    if KIND == SQUARE:
        for f in range(FROM, FROM + W):
            x = tl.load(X + i * F + f, mask=i < M, other=0.0)
            z = tl.load(Z + j * F + f, mask=j < N, other=0.0)
            d = tl.sum(p * (z[None, :] - x[:, None]), 0)
            tl.store(DZ + j * F + f, 2.0 * number * d, mask=j < N)
    else:
        c = tl.sum(p, 0)
        total, best, others = _terms_of_outputs(Z, j, j < N, FROM, W, PADDED, KIND, F)
        pull = tl.zeros([j.shape[0]], tl.float32)
        missing = tl.zeros([j.shape[0]], tl.float32)
        if KIND != BERNOULLI:
            for f in range(FROM, FROM + W):
                s, z = _sums(X, Z, p, i, j, f, M, N, F)
                pull += attraction(z, s, c, f, total, best, others, KIND)
                missing += tl.where(f == best, c - s, 0.0)
        for f in range(FROM, FROM + W):
            s, z = _sums(X, Z, p, i, j, f, M, N, F)
            d = attraction(z, s, c, f, total, best, others, KIND)
            if KIND != BERNOULLI:
                d -= repulsion(z, pull, missing, f, total, best, others, KIND)
            tl.store(DZ + j * F + f, -number * d, mask=j < N)


@triton.jit
def _share(WEIGHT, e, size, WEIGHTED: tl.constexpr, AVERAGED: tl.constexpr):
    """What elements e of a set count: their weight or 1, if AVERAGED 1 of their number; else 0."""
    if WEIGHTED:
        return tl.load(WEIGHT + e, mask=e < size, other=0.0)
    elif AVERAGED:
        return tl.where(e < size, 1.0 / size, 0.0)
    else:
        return tl.where(e < size, 1.0, 0.0)


@triton.jit
def small_loss(
    X, Z, VALID, TARGET_VALID, WEIGHT, SHARE, NUMBERS, T, LOSS, DZ, M, N, factor, t,
    MODE: tl.constexpr, BOTH: tl.constexpr, MASKED: tl.constexpr, TARGET_MASKED: tl.constexpr,
    WEIGHTED: tl.constexpr, SHARED: tl.constexpr, ON_DEVICE: tl.constexpr, GRADIENT: tl.constexpr,
    KINDS: tl.constexpr, WIDTHS: tl.constexpr, STARTS: tl.constexpr, PADDED: tl.constexpr,
    F: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """``LOSS_b = factor loss`` of set b, and with GRADIENT its derivative DZ [b, j, f].

    The MODE of the loss, with w_i the WEIGHT (by default 1, or 1 / M if it is "mean")::

        soft    -sum_i w_i t logsumexp_j(-H_ij / t)
        mean     sum_i w_i min_j H_ij      and if BOTH, + sum_j SHARE_j min_i H_ij
        worst    max_i w_i min_j H_ij      and if BOTH, or max_j min_i H_ij if that is larger

    j is of what is VALID [b, N], and i in the other direction of TARGET_VALID [b, M]. SHARE_j is
    1 / N unless SHARED; where outputs or targets are masked, it is 0 for what has no choice.
    """
    b = tl.program_id(0).to(tl.int64)
    X, Z, DZ = X + b * M * F, Z + b * N * F, DZ + b * N * F
    i, j = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    h = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in tl.static_range(len(KINDS)):
        h = add_costs(
            h, X, Z, tl.load(NUMBERS + k), i, j, M, N,
            KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
        )  # fmt: skip
    # A NaN is nobody's nearest, and yet has to be seen.
    unknown = tl.max(tl.max((h != h).to(tl.int32), 1), 0)
    h = tl.where(h == h, h, float("inf"))
    admitted = j < N
    if MASKED:
        admitted &= tl.load(VALID + b * N + j, mask=j < N, other=0) != 0
    to_outputs = tl.where(admitted[None, :], h, float("inf"))
    w = _share(WEIGHT + b * M, i, M, WEIGHTED, MODE == "mean")
    nearest = tl.min(to_outputs, 1)
    if MODE == "soft":
        t = temperature_of(T, t, ON_DEVICE)
        anchor = tl.where(nearest < float("inf"), nearest, 0.0)
        powers = tl.exp2((anchor[:, None] - to_outputs) / t * LOG2_E)
        total = tl.sum(powers, 1)
        loss = tl.sum(tl.where(w != 0, w * (anchor - t * LN_2 * tl.log2(total)), 0.0), 0)
        p = powers * (w / tl.where(total > 0, total, 1.0))[:, None]
    else:
        # The first of equals.
        at = tl.min(tl.where(to_outputs == nearest[:, None], j[None, :], BLOCK_N), 1)
        p = tl.where(j[None, :] == at[:, None], w[:, None], 0.0)
        served = tl.where(w != 0, w * nearest, 0.0)
        if BOTH:
            there = i < M
            if TARGET_MASKED:
                there &= tl.load(TARGET_VALID + b * M + i, mask=i < M, other=0) != 0
            to_targets = tl.where(there[:, None], h, float("inf"))
            closest = tl.min(to_targets, 0)
            share = _share(SHARE + b * N, j, N, SHARED, MODE == "mean")
            at = tl.min(tl.where(to_targets == closest[None, :], i[:, None], BLOCK_M), 0)
            q = tl.where(i[:, None] == at[None, :], share[None, :], 0.0)
            explained = tl.where(share > 0, share * closest, 0.0)
        if MODE == "mean":
            loss = tl.sum(served, 0)
            if BOTH:
                loss += tl.sum(explained, 0)
                p += q
        else:
            # Equally bad ones share the gradient, and so do directions.
            loss = tl.max(served, 0)
            is_worst = (served == loss) & (i < M)
            p = tl.where(is_worst[:, None], p, 0.0) / tl.sum(is_worst.to(tl.float32), 0)
            if BOTH:
                back = tl.max(explained, 0)
                is_worst = (explained == back) & (j < N)
                q = tl.where(is_worst[None, :], q, 0.0) / tl.sum(is_worst.to(tl.float32), 0)
                part = tl.where(loss == back, 0.5, tl.where(loss > back, 1.0, 0.0))
                p = part * p + (1.0 - part) * q
                loss = tl.maximum(loss, back)
    tl.store(LOSS + b, tl.where(unknown > 0, float("nan"), factor * loss))
    if GRADIENT:
        p *= factor
        for k in tl.static_range(len(KINDS)):
            store_gradient(
                X, Z, DZ, p, tl.load(NUMBERS + k), i, j, M, N,
                KINDS[k], STARTS[k], WIDTHS[k], PADDED[k], F,
            )  # fmt: skip
