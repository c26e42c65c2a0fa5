"""Which tiles a backward pass may leave out, told from what the forward pass saw of them.

Legend: B sets, M queries, N keys, F features. A tile is a block of queries by a block of keys. The
weight of a pair in a gradient is ``exp(score_ij - lse_i)``, where ``score_ij = queries_i . keys_j +
bias_j`` and ``lse_i = logsumexp_j score_ij``.

Where outputs are told apart well, nearly all weights are practically zero. Of each tile, thousands
of scores, the forward pass keeps two numbers. They bound its weights from above, each for some data
better than the other:

- its peak, the largest score. Less the smallest lse of its queries, it bounds the largest exponent.
  One query that all outputs are far from makes that a poor bound for the others beside it.
- its lag, the largest score where each is relative to the best that its query had met by then,
  which is no more than its lse. Before a query has met the output it belongs to, that says little.

Nothing here waits for the device.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F_

from setwise.kernels.triton import points
from setwise.kernels.triton.matmul import PEAK_QUERIES
from setwise.kernels.triton.tiles import Tiles, blocks_in, matmul_blocks

# A tile is left out if its weights are all below 2^-CUTOFF_BITS / N. The weights of a query add up
# to 1, and those it loses to less than 2^-40: 16 bits below the rounding of float32, and further
# below that of tf32 and of types of 16 bits. Of M = N queries, a key loses no more. Where weights
# are multiplied in float16 (see `weights.FLOAT16_SCALE`), those below 2^-40 are zero in any case.
CUTOFF_BITS = 40

# Least B M N F. A shorter call is over before the host has started the steps that build the lists.
MIN_PRODUCTS = 2**36

# Least M and N: a loop over a few tiles has none to spare.
MIN_ELEMENTS = 256

# Most M N / ((M + N) F). Records and lists grow with M N, all else with M + N: they must not take
# more memory than the sets, which are (M + N) F numbers of 4 bytes. A tile of the backward pass has
# 2^11 pairs at least, and takes less than 16 bytes while lists are built; a record of the forward
# pass is of 2^12 pairs at least, and takes 8 bytes. For each number in the sets that makes at most
# 2^8 (16 / 2^11 + 8 / 2^12) = 2.5 bytes. (For types of 16 bits: 1.5 of 2, for the tiles of sets
# that are so large have 2^12 pairs.)
MAX_PAIRS = 2**8


def peaks_shape(B: int, M: int, N: int, F: int) -> tuple[int, int, int, int] | None:
    """The shape of what the forward pass should keep: peaks, then lags, of groups of queries.

    None where skipping cannot pay. The sizes may be symbols, where ``torch.compile`` works out
    shapes.
    """
    if F <= points.MAX_FEATURES:
        return None  # their kernels are others, and their scores are cheap
    if B * M * N * F < MIN_PRODUCTS or min(M, N) < MIN_ELEMENTS:
        return None
    if M * N > MAX_PAIRS * (M + N) * F:
        return None
    _, key_block = matmul_blocks(M, N, F)
    return B, 2, blocks_in(M, PEAK_QUERIES.value), blocks_in(N, key_block)


def significant_tiles(
    peaks: Tensor, lse: Tensor, per_query: Tensor | None, N: int, base_2: bool = False
) -> Tensor:
    """Where some weight may reach the cutoff, of what was recorded: [B, groups, blocks of keys].

    ``per_query`` [B, M] is a factor of the gradient of each query. If it is 0, the query adds
    exactly nothing, whatever its weights. With ``base_2`` peaks and lse are in bits.
    """
    if per_query is not None:
        # Added, not put in its place, so that an lse of NaN stays one.
        lse = lse + torch.where(per_query == 0, math.inf, 0.0)
    lowest = _grouped(lse, 1, PEAK_QUERIES.value, math.inf).amin(dim=2)
    largest = torch.minimum(peaks[:, 0] - lowest.unsqueeze(2), peaks[:, 1])
    # As "not below", so that NaN keeps a tile: that of a score makes the lse NaN. A peak of -inf,
    # where all keys of a tile are masked, drops it: the weights are exactly zero.
    bit = 1.0 if base_2 else math.log(2)
    return ~(largest < -bit * (CUTOFF_BITS + math.log2(N)))


def tiles_to_visit(
    kept: Tensor, M: int, N: int, F: int, tiles: Tiles, rows_are_keys: bool, per_split: int
) -> tuple[Tensor, Tensor]:
    """The LIST [B, blocks of rows, splits, blocks of columns] and COUNT of `matmul.gradients`.

    Ascending, so that sums keep their order. What follows the first COUNT entries is never read. A
    split of a loop, ``per_split`` columns long, visits what it would anyway, less what is left out.
    """
    query_block, key_block = (tiles.c, tiles.a) if rows_are_keys else (tiles.a, tiles.c)
    kept = _reblocked(kept, 1, PEAK_QUERIES.value, query_block, M)
    kept = _reblocked(kept, 2, matmul_blocks(M, N, F)[1], key_block, N)
    kept = kept.mT.contiguous() if rows_are_keys else kept
    kept = _grouped(kept, 2, blocks_in(per_split, tiles.c), False)
    # Where in a split its first, second, ... kept tile stands: as many tiles have a lower rank.
    rank = kept.cumsum(dim=3, dtype=torch.int32)
    asked = torch.arange(1, rank.shape[3] + 1, dtype=torch.int32, device=rank.device)
    listed = torch.searchsorted(rank, asked.expand_as(rank).contiguous(), out_int32=True)
    return listed, rank[..., -1].contiguous()


def _reblocked(kept: Tensor, dim: int, had: int, wanted: int, size: int) -> Tensor:
    """The same for blocks of another size; both sizes are powers of two."""
    if wanted > had:
        return _grouped(kept, dim, wanted // had, False).any(dim=dim + 1)
    if wanted < had:
        finer = kept.repeat_interleave(had // wanted, dim)
        return finer.narrow(dim, 0, blocks_in(size, wanted))
    return kept


def _grouped(values: Tensor, dim: int, group: int, filling: float | bool) -> Tensor:
    """A dimension cut into groups, the last of them filled up."""
    size = values.shape[dim]
    lacking = blocks_in(size, group) * group - size
    if lacking:
        values = F_.pad(values, (0, 0) * (values.dim() - 1 - dim) + (0, lacking), value=filling)
    return values.unflatten(dim, (-1, group))
