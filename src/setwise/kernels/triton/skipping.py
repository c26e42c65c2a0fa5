"""Which tiles a backward pass may leave out, told from what the forward pass saw of them.

Legend: B sets, M queries, N keys, F features. A tile is a block of queries by a block of keys, its
peak the largest score in it, ``queries_i . keys_j + bias_j``. The weight of a pair in a gradient
is ``exp(score_ij - lse_i)``, where ``lse_i = logsumexp_j score_ij``.

Where outputs are told apart well, nearly all weights are practically zero. The forward pass keeps
peaks, one number for thousands of scores, and they bound the weights of any tile of the backward
pass from above. Nothing here waits for the device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F_

from setwise.kernels.triton import points
from setwise.kernels.triton.products import PEAK_QUERIES
from setwise.kernels.triton.tiles import Tiles, blocks_in, product_blocks

# A tile is left out if its weights are all below 2^-CUTOFF_BITS / N. That is far below rounding, on
# purpose: the gradient of an output that hardly any target chooses is small, but an optimiser that
# divides by the size of gradients (Adam) makes steps of it.
CUTOFF_BITS = 64

# Least B M N F. A shorter call is over before the host has started the steps that build the lists.
LEAST_PRODUCTS = 2**36

# Least M and N: a walk of a few tiles has none to spare.
LEAST_ELEMENTS = 256

# Most M N / ((M + N) F). Lists grow with M N, all else with M + N: building them must not take more
# memory than the sets themselves. A tile of the backward pass has 2^12 pairs at least, so there are
# at most (M + N) F / 16 entries.
MOST_PAIRS = 2**8


def peaks_shape(B: int, M: int, N: int, F: int) -> tuple[int, int, int] | None:
    """The shape of the peaks that the forward pass should keep; None where skipping cannot pay.

    The sizes may be symbols, where ``torch.compile`` works out shapes.
    """
    if F <= points.MAX_FEATURES:
        return None  # their kernels are others, and their scores are cheap
    if B * M * N * F < LEAST_PRODUCTS or min(M, N) < LEAST_ELEMENTS:
        return None
    if M * N > MOST_PAIRS * (M + N) * F:
        return None
    _, key_block = product_blocks(M, N, F)
    return B, blocks_in(M, PEAK_QUERIES.value), blocks_in(N, key_block)


def tiles_to_visit(
    peaks: Tensor, lse: Tensor, N: int, F: int, tiles: Tiles, owns_keys: bool
) -> tuple[Tensor, Tensor]:
    """The LIST [B, blocks of owners, blocks of others] and COUNT of `products.gradients`.

    Ascending, so that sums keep their order. What follows the first COUNT entries is never read.
    """
    M = lse.shape[1]
    query_block, key_block = (tiles.c, tiles.a) if owns_keys else (tiles.a, tiles.c)
    peaks = _reblocked(peaks, 1, PEAK_QUERIES.value, query_block, M)
    peaks = _reblocked(peaks, 2, product_blocks(M, N, F)[1], key_block, N)
    lowest = _grouped(lse, 1, query_block, math.inf).amin(dim=2)
    cutoff = -math.log(2) * CUTOFF_BITS - math.log(N)
    # As "not below", so that NaN, and an infinite lse, keep a tile. A peak of -inf, where all keys
    # of a tile are barred, drops it: the weights are exactly zero.
    kept = ~(peaks - lowest.unsqueeze(2) < cutoff)
    kept = kept.mT.contiguous() if owns_keys else kept
    others = kept.shape[2]
    order = torch.arange(others, dtype=torch.int32, device=kept.device)
    listed = torch.where(kept, order, others).sort(dim=2).values
    return listed, kept.sum(dim=2, dtype=torch.int32)


def _reblocked(peaks: Tensor, dim: int, had: int, wanted: int, size: int) -> Tensor:
    """Upper bounds of the peaks for blocks of another size; both sizes are powers of two."""
    if wanted > had:
        return _grouped(peaks, dim, wanted // had, -math.inf).amax(dim=dim + 1)
    if wanted < had:
        finer = peaks.repeat_interleave(had // wanted, dim)
        return finer.narrow(dim, 0, blocks_in(size, wanted))
    return peaks


def _grouped(values: Tensor, dim: int, group: int, filling: float) -> Tensor:
    """A dimension cut into groups, the last of them filled up."""
    size = values.shape[dim]
    lacking = blocks_in(size, group) * group - size
    if lacking:
        values = F_.pad(values, (0, 0) * (values.dim() - 1 - dim) + (0, lacking), value=filling)
    return values.unflatten(dim, (-1, group))
