"""Points in few dimensions, by SciPy's k-d trees: the pairs that matter instead of all pairs.

Legend: B sets, M queries, N keys, D features, all of them compared, P pairs.

A score is ``bias_j - sum_f c_f (queries_if - keys_jf)^2`` (see `reference`), where the bias says no
more than which keys are admissible: 0 or -inf. In units of ``1 / sqrt(c_f)`` it is the square of a
distance, and a tree of the keys finds the nearest, or all within reach, without the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from setwise.kernels import chunked

if TYPE_CHECKING:
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

Points = NDArray[np.float64]  # [_, D], scaled

# Beyond these a tree looks at most of its points all the same, or takes longer than it saves.
MOST_FEATURES = 8
FEWEST_POINTS = 1000

# A pair whose softmax weight is below 2^-BITS / N is left out, so that a logsumexp misses less than
# 2^-BITS of its sum.
BITS = {torch.float32: 40, torch.float64: 64}

# So many queries tell how many pairs there are. To pick out more than this share of all does not
# pay; nor are there to be more in a call than memory has room for, about 100 bytes each.
SAMPLE = 256
LARGEST_SHARE = 1 / 32
MOST_PAIRS = 2**24

# All pairs within one distance are found at once: queries share it if they reach about as far.
ALIKE = 1.25


def suit(queries: Tensor, keys: Tensor, sharpness: Tensor | None) -> bool:
    """Whether a call is about points that trees may help with, as far as its shapes tell."""
    return (
        sharpness is not None
        and len(queries) > 0
        and sharpness.shape[-1] == queries.shape[2]
        and suit_sizes(queries.shape[1], keys.shape[1], queries.shape[2])
        and queries.device.type == "cpu"
    )


def suit_sizes(M: int, N: int, D: int) -> bool:
    """Whether trees may help with so many points of so many features."""
    return D <= MOST_FEATURES and min(M, N) >= FEWEST_POINTS


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]; one of them if several are equal."""
    if not _are_points(queries, keys, bias):
        return chunked.argmax(queries, keys, bias, sharpness)
    nearest = torch.empty(queries.shape[:2], dtype=torch.long)
    for b, (points, tree, admissible) in enumerate(_sets(queries, keys, bias, sharpness)):
        _, found = tree.query(points, workers=torch.get_num_threads())
        nearest[b] = admissible[torch.from_numpy(found)]
    return nearest


def logsumexp(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor) -> Tensor | None:
    """``logsumexp_j score_ij`` over the pairs that matter, shape [B, M]; differentiable.

    None where trees do not help: too many pairs matter, or there are numbers that are not finite.
    """
    if not _are_points(queries, keys, bias):
        return None
    bits = BITS[queries.dtype] * math.log(2)
    with torch.no_grad():
        sets = []
        for points, tree, admissible in _sets(queries, keys, bias, sharpness):
            # In the units of a score: how much less than the largest one may be.
            most = MOST_PAIRS // len(queries)
            pairs = _pairs(points, tree, bits + math.log(len(admissible)), most)
            if pairs is None:
                return None
            query, key = pairs
            sets.append((query, admissible[key]))
    sums = [_sums(queries[b], keys[b], sharpness[b], *pairs) for b, pairs in enumerate(sets)]
    return torch.stack(sums)


def _sums(queries: Tensor, keys: Tensor, sharpness: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The logsumexp [M] over pairs [P] of a query and a key; each query has at least one."""
    apart = queries[query] - keys[key]
    scores = -(sharpness * apart.square()).sum(dim=-1)
    top = torch.full_like(queries[:, 0], -math.inf)
    top = top.scatter_reduce(0, query, scores.detach(), "amax").detach()
    weights = (scores - top[query]).exp()
    return top + torch.zeros_like(top).index_add(0, query, weights).log()


def _are_points(queries: Tensor, keys: Tensor, bias: Tensor) -> bool:
    """Whether coordinates are finite, and the bias tells admissible keys from others alone."""
    told = (bias == 0) | (bias == -math.inf)
    return bool(queries.isfinite().all() & keys.isfinite().all() & told.all())


def _sets(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor
) -> Iterator[tuple[Points, cKDTree, Tensor]]:
    """Of each set the queries, a tree of the admissible keys, and which those are."""
    from scipy.spatial import cKDTree

    for b in range(len(queries)):
        scale = sharpness[b].detach().double().sqrt()
        admissible = torch.nonzero(bias[b].isfinite()).squeeze(-1)
        points = queries[b].detach().double() * scale
        tree = cKDTree((keys[b].detach()[admissible].double() * scale).numpy())
        yield points.numpy(), tree, admissible


def _pairs(points: Points, tree: cKDTree, slack: float, most: int) -> tuple[Tensor, Tensor] | None:
    """Queries and keys [P] of all pairs whose squared distance is within ``slack`` of the least.

    None if these are more than ``most``, or too large a share of all.
    """
    sample = points[:: max(1, len(points) // SAMPLE)]
    nearest, _ = tree.query(sample)
    counts = tree.query_ball_point(sample, np.sqrt(nearest**2 + slack), return_length=True)
    if counts.mean() * len(points) > min(LARGEST_SHARE * len(points) * tree.n, most):
        return None
    from scipy.spatial import cKDTree

    nearest, _ = tree.query(points, workers=torch.get_num_threads())
    reach = np.sqrt(nearest**2 + slack)
    band = np.floor(np.log(reach / reach.min()) / math.log(ALIKE))
    found, count = [], 0
    for which in np.unique(band):
        members = np.flatnonzero(band == which)
        near = cKDTree(points[members]).sparse_distance_matrix(
            tree, reach[members].max(), output_type="ndarray"
        )
        query = members[near["i"]]
        within = near["v"] <= reach[query]
        found.append((query[within], near["j"][within]))
        count += len(found[-1][0])
        if count > most:  # a sample may miss where points are dense
            return None
    query, key = (torch.from_numpy(np.concatenate(parts)) for parts in zip(*found, strict=True))
    return query, key
