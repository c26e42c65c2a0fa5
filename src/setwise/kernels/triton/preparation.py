"""Kernels that make the bias of Bernoulli elements of more than a few features, before any loop."""

from __future__ import annotations

import triton
import triton.language as tl

from setwise.kernels.triton.rounding import as_operand
from setwise.kernels.triton.weights import LN_2, LOG2_E

LOWEST_FLOAT = tl.constexpr(-3.4028234663852886e38)


@triton.jit
def prepare(
    Z, X, VALID, BIAS, Z_PADDED, X_PADDED, n, m,
    MASKED: tl.constexpr, COPIED: tl.constexpr, F: tl.constexpr, F_PADDED: tl.constexpr,
    BLOCK_A: tl.constexpr, BLOCK_F: tl.constexpr,
):  # fmt: skip
    """``BIAS[a] = -sum_f softplus(Z[a, f])``, and -inf where not VALID; summed in BIAS's type.

    With COPIED, Z_PADDED and X_PADDED get the n elements of Z and the m of X as they are
    multiplied, padded with zeros to F_PADDED. The bias is that of the rounded Z: then all is as if
    Z had been so from the start, and errors of confident outputs cancel, for ``x - sigmoid(z)`` is
    what the loss depends on z by.
    """
    a = tl.program_id(0) * BLOCK_A + tl.arange(0, BLOCK_A).to(tl.int64)
    total = tl.zeros([BLOCK_A], BIAS.dtype.element_ty)
    for f0 in range(0, F, BLOCK_F):
        f = f0 + tl.arange(0, BLOCK_F)
        at = a[:, None] * F + f[None, :]
        ok = (a < n)[:, None] & (f < F)[None, :]
        given = tl.load(Z + at, mask=ok, other=0.0)
        if COPIED:
            given = as_operand(given, Z_PADDED.dtype.element_ty)
        z = given.to(tl.float32)
        # log(1 + e^z) without overflow. Added in the type of the sum: in float32 the two terms
        # would round to one side more often than to the other, and many features add that up.
        beyond = LN_2 * tl.log2(1.0 + tl.exp2(-tl.abs(z) * LOG2_E))
        softplus = tl.maximum(z, 0.0).to(total.dtype) + beyond.to(total.dtype)
        total += tl.sum(tl.where(ok, softplus, 0.0), 1)
        if COPIED:
            x = tl.load(X + at, mask=(a < m)[:, None] & (f < F)[None, :], other=0.0)
            x = as_operand(x, X_PADDED.dtype.element_ty)
            at = a[:, None] * F_PADDED + f[None, :]
            there = (f < F_PADDED)[None, :]
            tl.store(Z_PADDED + at, given, mask=(a < n)[:, None] & there)
            tl.store(X_PADDED + at, x, mask=(a < m)[:, None] & there)
    bias = -total
    if MASKED:
        bias = tl.where(tl.load(VALID + a, mask=a < n, other=1) != 0, bias, float("-inf"))
    tl.store(BIAS + a, bias, mask=a < n)


@triton.jit
def centre(BIAS, TOP, RELATIVE, CENTRE, N, BLOCK: tl.constexpr):
    """``RELATIVE[b] = BIAS[b] - CENTRE[b]``, all but the bias of N outputs and TOP in float32.

    The CENTRE of a set is its largest bias, given as TOP [b]. Where no output is valid, it is the
    least number there is, for the difference has to be -inf.
    """
    blocks = tl.cdiv(N, BLOCK)
    b = (tl.program_id(0) // blocks).to(tl.int64)
    j = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    top = tl.load(TOP + b)
    largest = tl.where(top < LOWEST_FLOAT, LOWEST_FLOAT, top).to(tl.float32)
    bias = tl.load(BIAS + b * N + j, mask=j < N, other=0.0)
    tl.store(RELATIVE + b * N + j, (bias - largest.to(tl.float64)).to(tl.float32), mask=j < N)
    tl.store(CENTRE + b, largest)
