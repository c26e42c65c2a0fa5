"""Kernels before and after a loop over pairs: from elements to its operands, and back.

Legend: M targets X, N outputs Z, F features; B sets b. A score is ``(-H_ij - h_i) / t``, at the
temperature t: ``q_i . k_j + BIAS_j`` and, of features that are compared, ``-c_f (x_if - z_jf)^2``;
h_i, what is left of the cost, depends on the target alone. Squares that are not compared are
multiplied out, from an origin in the midst of the targets: where terms cancel, they should at least
be small.
"""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.families import (
    BERNOULLI,
    CHOICE,
    SQUARE,
    attraction,
    choice_terms,
    logs,
    repulsion,
    temperature_of,
)
from setwise.kernels.triton.rounding import as_operand

# Targets whose mean is the origin; of a masked set all targets are looked at.
SAMPLE = tl.constexpr(32)


@triton.jit
def _origin(
    X, TARGET_VALID, f, f_ok, m, F: tl.constexpr, MASKED: tl.constexpr
):  # fmt: skip
    """The mean feature f of targets from all over the set, or of all that are valid."""
    total = tl.zeros([f.shape[0]], tl.float32)
    count = 0.0
    step = tl.maximum(m // SAMPLE, 1)
    end = tl.minimum(m, SAMPLE)
    if MASKED:
        step, end = 1, m
    for first in range(0, end, SAMPLE):
        i = (first + tl.arange(0, SAMPLE)) * step
        there = i < m
        if MASKED:
            there &= tl.load(TARGET_VALID + i, mask=there, other=0) != 0
        x = tl.load(X + i[:, None] * F + f[None, :], mask=there[:, None] & f_ok[None, :], other=0.0)
        total += tl.sum(x, 0)
        count += tl.sum(there.to(tl.float32), 0)
    return total / tl.maximum(count, 1.0)


@triton.jit
def _store(ROWS, ACROSS, value, e, there, at, ok, width, stride, IN_ROWS: tl.constexpr,
           IS_ACROSS: tl.constexpr, ROUNDED: tl.constexpr):  # fmt: skip
    """Features ``at`` of elements e: in rows of that width, and in columns of that stride."""
    if ROUNDED:
        value = as_operand(value, ROWS.dtype.element_ty)
    ok = there[:, None] & ok[None, :]
    if IN_ROWS:
        tl.store(ROWS + e[:, None] * width + at[None, :], value, mask=ok)
    if IS_ACROSS:
        tl.store(ACROSS + at[None, :] * stride + e[:, None], value, mask=ok)


@triton.jit
def _key(z, f, ok, scale, kind: tl.constexpr, KIND: tl.constexpr, ROUNDED: tl.constexpr):
    """``eta(z)`` and ``A(z)`` of a block [rows, width], times a scale.

    If keys are ROUNDED to that kind, so are the terms of A that they cancel: those of features that
    are likely, which would else cost what was lost, or cut off, of their keys.
    """
    if KIND == BERNOULLI:
        log_p, log_not_p = logs(z, f, z, f, z, KIND)
        key = scale * z
    else:
        total, best, others = choice_terms(z, f, ok, KIND)
        log_p, log_not_p = logs(z, f[None, :], total[:, None], best[:, None], others[:, None], KIND)
        log_p, log_not_p = tl.where(ok, log_p, 0.0), tl.where(ok, log_not_p, 0.0)
        key = scale * (log_p - log_not_p)
    partition = -scale * log_not_p
    if ROUNDED:
        key = as_operand(key, kind).to(tl.float32)
        partition = tl.where(key > 0, key - scale * log_p, partition)
    return key, tl.sum(tl.where(ok, partition, 0.0), 1)


@triton.jit
def _prepare_block(
    X, Z, TARGET_VALID, Q, K, Q_T, K_T, Q_APART, K_APART, SHARPNESS, ORIGIN,
    number, t, e, told, M, N, q_stride, k_stride, bias, base,
    KIND: tl.constexpr, W: tl.constexpr, FROM: tl.constexpr, PLACE: tl.constexpr,
    PADDED: tl.constexpr, D: tl.constexpr, POINTS: tl.constexpr, CENTRED: tl.constexpr,
    TARGET_MASKED: tl.constexpr, ROUNDED: tl.constexpr, Q_ACROSS: tl.constexpr, F: tl.constexpr,
    WIDTH: tl.constexpr,
):  # fmt: skip
    """`prepare` of one block; what all elements of a set share is stored if it is to be told."""
    f = tl.arange(0, PADDED)
    f_ok = f < W
    x_ok = (e < M)[:, None] & f_ok[None, :]
    z_ok = (e < N)[:, None] & f_ok[None, :]
    x = tl.load(X + e[:, None] * F + (FROM + f)[None, :], mask=x_ok, other=0.0)
    z = tl.load(Z + e[:, None] * F + (FROM + f)[None, :], mask=z_ok, other=0.0)
    once = f < tl.where(told, W, 0)
    if KIND == SQUARE:
        if CENTRED:
            origin = _origin(X, TARGET_VALID, FROM + f, f_ok, M, F, TARGET_MASKED)
            tl.store(ORIGIN + FROM + f, origin, mask=once)
            x = tl.where(x_ok, x - origin[None, :], 0.0)
            z = tl.where(z_ok, z - origin[None, :], 0.0)
            base -= number * tl.sum(x * x, 1)
            bias -= number / t * tl.sum(z * z, 1)
            z *= 2.0 * number / t
        else:
            tl.store(SHARPNESS + PLACE + f, tl.zeros([PADDED], tl.float32) + number / t, mask=once)
    else:
        z, partition = _key(z, f, z_ok, number / t, K.dtype.element_ty, KIND, ROUNDED)
        bias -= partition
    at = PLACE + f
    if POINTS:
        _store(Q, Q_T, x, e, e < M, at, f_ok, F, q_stride, True, True, False)
        _store(K, K_T, z, e, e < N, at, f_ok, F, k_stride, True, True, False)
    elif KIND == SQUARE and not CENTRED:
        _store(Q, Q_APART, x, e, e < M, at, f_ok, F, q_stride, False, True, False)
        _store(K, K_APART, z, e, e < N, at, f_ok, F, k_stride, False, True, False)
    else:
        _store(Q, Q_T, x, e, e < M, at - D, f_ok, WIDTH, M, True, Q_ACROSS, ROUNDED)
        _store(K, K_T, z, e, e < N, at - D, f_ok, WIDTH, N, True, False, ROUNDED)
    return bias, base


@triton.jit
def prepare(
    X, Z, VALID, TARGET_VALID, WEIGHT, NUMBERS, T,
    Q, K, Q_T, K_T, Q_APART, K_APART, BIAS, BASE, SHARPNESS, ORIGIN, PARTS,
    M, N, q_stride, k_stride, blocks, t, factor,
    KINDS: tl.constexpr, WIDTHS: tl.constexpr, STARTS: tl.constexpr, PLACES: tl.constexpr,
    PADDED: tl.constexpr, D: tl.constexpr, POINTS: tl.constexpr, CENTRED: tl.constexpr,
    MASKED: tl.constexpr, TARGET_MASKED: tl.constexpr, WEIGHTED: tl.constexpr,
    ON_DEVICE: tl.constexpr, ROUNDED: tl.constexpr, Q_ACROSS: tl.constexpr, BASED: tl.constexpr,
    F: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Operands of the loops, features in the order of PLACES: those that are compared first.

    There are D of these, of SHARPNESS [b, D]. Of POINTS all features are in Q and K, rows of F, and
    in Q_T and K_T, columns of some stride. Else those that are multiplied are in Q and K, rows of
    WIDTH filled up with zeros, if Q_ACROSS also in Q_T [b, WIDTH, M]; and those that are compared
    in the columns Q_APART and K_APART. With ROUNDED what is multiplied is rounded to the type
    of Q and K, or to tf32.

    BIAS_j is -inf where not VALID. If CENTRED squares are multiplied, from the ORIGIN [b, F]; then
    PARTS [b, block] get ``factor sum_i WEIGHT_i h_i``. Or if BASED, BASE_i is h_i, and -inf where
    not TARGET_VALID.
    """
    b = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    e = block * BLOCK + tl.arange(0, BLOCK)
    X, Z, TARGET_VALID = X + b * M * F, Z + b * N * F, TARGET_VALID + b * M
    if POINTS:
        Q, K = Q + b * M * F, K + b * N * F
        Q_T, K_T = Q_T + b * F * q_stride, K_T + b * F * k_stride
    else:
        Q, K, Q_T = Q + b * M * WIDTH, K + b * N * WIDTH, Q_T + b * WIDTH * M
        Q_APART, K_APART = Q_APART + b * D * q_stride, K_APART + b * D * k_stride
    SHARPNESS, ORIGIN = SHARPNESS + b * D, ORIGIN + b * F
    t = temperature_of(T, t, ON_DEVICE)
    bias = tl.zeros([BLOCK], tl.float32)
    base = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(len(KINDS)):
        bias, base = _prepare_block(
            X, Z, TARGET_VALID, Q, K, Q_T, K_T, Q_APART, K_APART, SHARPNESS, ORIGIN,
            tl.load(NUMBERS + k), t, e, block == 0, M, N, q_stride, k_stride, bias, base,
            KINDS[k], WIDTHS[k], STARTS[k], PLACES[k], PADDED[k], D, POINTS, CENTRED,
            TARGET_MASKED, ROUNDED, Q_ACROSS, F, WIDTH,
        )  # fmt: skip
    if not POINTS and WIDTH > F - D:
        f = F - D + tl.arange(0, 16)
        zeros = tl.zeros([BLOCK, 16], tl.float32)
        _store(Q, Q_T, zeros, e, e < M, f, f < WIDTH, WIDTH, M, True, Q_ACROSS, False)
        _store(K, K_T, zeros, e, e < N, f, f < WIDTH, WIDTH, N, True, False, False)
    if MASKED:
        valid = tl.load(VALID + b * N + e, mask=e < N, other=1) != 0
        bias = tl.where(valid, bias, float("-inf"))
    tl.store(BIAS + b * N + e, bias, mask=e < N)
    if BASED:
        at = base
        if TARGET_MASKED:
            valid = tl.load(TARGET_VALID + e, mask=e < M, other=1) != 0
            at = tl.where(valid, base, float("-inf"))
        tl.store(BASE + b * M + e, at, mask=e < M)
    elif CENTRED:
        if WEIGHTED:
            base *= tl.load(WEIGHT + b * M + e, mask=e < M, other=0.0)
        tl.store(PARTS + tl.program_id(0), factor * tl.sum(base, 0))


@triton.jit
def store_loss(
    PARTS, BASE_PARTS, LOSS, T, t, parts, base_parts, ON_DEVICE: tl.constexpr, BLOCK: tl.constexpr
):
    """``LOSS = t sum PARTS + sum BASE_PARTS`` of one set, or of all; by one program."""
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, parts, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(PARTS + at, mask=at < parts, other=0.0)
    total *= temperature_of(T, t, ON_DEVICE)
    for first in range(0, base_parts, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(BASE_PARTS + at, mask=at < base_parts, other=0.0)
    tl.store(LOSS, tl.sum(total, 0))


@triton.jit(do_not_specialize=["parts", "base_parts"])
def total(
    PARTS, BASE_PARTS, LOSS, T, parts, base_parts, t, ON_DEVICE: tl.constexpr, BLOCK: tl.constexpr
):
    """`store_loss` of as many sets as there are programs."""
    b = tl.program_id(0).to(tl.int64)
    store_loss(
        PARTS + b * parts, BASE_PARTS + b * base_parts, LOSS + b, T, t, parts, base_parts,
        ON_DEVICE, BLOCK,
    )  # fmt: skip


@triton.jit
def slope(z, s, c, f, ok, number, KIND: tl.constexpr):
    """The gradient of outputs z [rows, width] of a block, but for squares.

    With g_i that of ``-H_ij``, s is ``sum_i g_i p_ij x_i`` and c is ``sum_i g_i p_ij``.
    """
    if KIND == BERNOULLI:
        return number * (s - c[:, None] * tl.sigmoid(z))
    else:
        total, best, others = choice_terms(z, f, ok, KIND)
        f, total, best, others = f[None, :], total[:, None], best[:, None], others[:, None]
        s = tl.where(ok, s, 0.0)
        d = tl.where(ok, attraction(z, s, c[:, None], f, total, best, others, KIND), 0.0)
        pull = tl.sum(d, 1)[:, None]
        missing = tl.zeros_like(pull)
        if KIND == CHOICE:
            missing = tl.sum(tl.where((f == best) & ok, c[:, None] - s, 0.0), 1)[:, None]
        d -= repulsion(z, pull, missing, f, total, best, others, KIND)
        return number * d


@triton.jit
def _finish_block(
    Z, DK, DAPART, ORIGIN, DZ, number, t, c, e, there, N,
    KIND: tl.constexpr, W: tl.constexpr, FROM: tl.constexpr, PLACE: tl.constexpr,
    PADDED: tl.constexpr, D: tl.constexpr, POINTS: tl.constexpr, CENTRED: tl.constexpr,
    F: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """`finish` of one block."""
    f = tl.arange(0, PADDED)
    ok = there[:, None] & (f < W)[None, :]
    at = e[:, None] * F + (FROM + f)[None, :]
    z = tl.load(Z + at, mask=ok, other=0.0)
    if POINTS:
        s = tl.load(DK + e[:, None] * F + (PLACE + f)[None, :], mask=ok, other=0.0)
    elif KIND == SQUARE and not CENTRED:
        s = tl.load(DAPART + e[:, None] * D + (PLACE + f)[None, :], mask=ok, other=0.0)
    else:
        s = tl.load(DK + e[:, None] * WIDTH + (PLACE - D + f)[None, :], mask=ok, other=0.0)
    if KIND != SQUARE:
        d = slope(z, s, c, f, ok, number, KIND)
    elif CENTRED:
        origin = ORIGIN + (e // N)[:, None] * F + (FROM + f)[None, :]
        d = 2.0 * number * (s - c[:, None] * (z - tl.load(origin, mask=ok, other=0.0)))
    else:
        d = s * t
    tl.store(DZ + at, d, mask=ok)


@triton.jit(do_not_specialize=["parts", "base_parts"])
def finish(
    Z, DK, DBIAS, DAPART, NUMBERS, T, ORIGIN, DZ, PARTS, BASE_PARTS, LOSS,
    n, N, parts, base_parts, t,
    KINDS: tl.constexpr, WIDTHS: tl.constexpr, STARTS: tl.constexpr, PLACES: tl.constexpr,
    PADDED: tl.constexpr, D: tl.constexpr, POINTS: tl.constexpr, CENTRED: tl.constexpr,
    ON_DEVICE: tl.constexpr, TOTALLED: tl.constexpr, F: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients DZ of n outputs, N in a set, from those of keys and bias: `prepare` undone.

    DK comes in rows of WIDTH, of POINTS with what is compared; else that is in rows DAPART of D. In
    both, its derivative is in units of its sharpness. With TOTALLED also `store_loss` of all sets.
    """
    if TOTALLED and tl.program_id(0) == 0:
        store_loss(PARTS, BASE_PARTS, LOSS, T, t, parts, base_parts, ON_DEVICE, 512)
    e = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
    there = e < n
    c = tl.load(DBIAS + e, mask=there, other=0.0)
    for k in tl.static_range(len(KINDS)):
        _finish_block(
            Z, DK, DAPART, ORIGIN, DZ, tl.load(NUMBERS + k), temperature_of(T, t, ON_DEVICE),
            c, e, there, N, KINDS[k], WIDTHS[k], STARTS[k], PLACES[k], PADDED[k],
            D, POINTS, CENTRED, F, WIDTH,
        )  # fmt: skip
