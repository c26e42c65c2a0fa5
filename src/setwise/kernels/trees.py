"""Points in few dimensions on a CPU, by k-d trees: the pairs that matter instead of all pairs.

Legend: B sets, M queries, N keys, D features, all of them compared.

A score is ``bias_j - sum_f c_f (queries_if - keys_jf)^2`` (see `reference`). In units of
``1 / sqrt(c_f)`` it is the square of a distance, and SciPy's tree of the keys finds the nearest. A
logsumexp is over all keys that are not much farther: over blocks of them, see `leaves`. These have
scores in bits, for powers of two take less time than those of e, relative to the highest bias.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.kernels import chunked, reference
from setwise.kernels.centred import LITTLE
from setwise.kernels.leaves import Leaves, Pairs, Visit, blocks_shape, tree_order
from setwise.kernels.powers import exp2_above_
from setwise.kernels.tiles import Tile, finite

# Beyond these a tree looks at most of its points all the same, or takes longer than it saves.
MOST_FEATURES = 8
FEWEST_POINTS = 1000

# A pair whose softmax weight is below 2^-BITS / N may be left out, so that a logsumexp misses less
# than 2^-BITS of its sum.
BITS = {torch.float32: 40, torch.float64: 64}
# So many queries tell, before anything is sorted, whether few pairs matter: this share, at most.
# Once blocks are known, all pairs are computed if it would be more than this share of them.
SAMPLE, FEW, LARGEST_SHARE = 16, 0.2, 0.7

BIT = math.log(2)

ALL_PAIRS = -1  # in place of an order


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


def sample(M: int) -> slice:
    """Some of M queries, for `few_matter`."""
    return slice(None, None, max(1, M // SAMPLE))


def few_matter(scores: Tensor) -> bool:
    """Whether few of the pairs of some queries with all keys matter: [..., N]."""
    slack = BIT * _slack(scores.dtype, scores.shape[-1])
    top = scores.amax(dim=-1, keepdim=True)
    return bool((scores >= top - slack).double().mean() <= FEW)


def orders_size(M: int, N: int) -> int:
    """How many numbers `logsumexp` gives for the order of both sides."""
    return math.prod(blocks_shape(M)) + math.prod(blocks_shape(N))


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]; one of them if several are equal."""
    told = (bias == 0) | (bias == -math.inf)
    if not (_are_points(queries, keys, bias) and told.all()):
        return chunked.argmax(queries, keys, bias, sharpness)
    from scipy.spatial import cKDTree  # type: ignore[import-untyped]

    nearest = torch.empty(queries.shape[:2], dtype=torch.long)
    for b in range(len(queries)):
        scale = sharpness[b].double().sqrt()
        admissible = torch.nonzero(bias[b].isfinite()).squeeze(-1)
        tree = cKDTree((keys[b, admissible].double() * scale).numpy())
        points = (queries[b].double() * scale).numpy()
        _, found = tree.query(points, workers=torch.get_num_threads())
        nearest[b] = admissible[torch.from_numpy(found)]
    return nearest


def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """``logsumexp_j score_ij``, shape [B, M]; its terms; the orders of both sides.

    The last two are for `logsumexp_backward`: the logsumexp and what was lost when it was rounded,
    [B, 2, M], both in the bits of `_pairs`, and integers [B, _]. Of a set of which all pairs are
    computed, as too many seem to matter or numbers are not finite, the integers are -1 and the
    terms those of `chunked`.
    """
    (B, M, _), N = queries.shape, keys.shape[1]
    lse, terms = queries.new_empty(B, M), queries.new_empty(B, 2, M)
    orders = queries.new_full((B, orders_size(M, N)), ALL_PAIRS, dtype=torch.long)
    few = _are_points(queries, keys, bias) and few_matter(
        reference.scores(queries[:, sample(M)], keys, bias, sharpness)
    )
    if not few:
        terms = torch.stack(chunked.logsumexp(queries, keys, bias, sharpness), dim=1)
        return terms[:, 0].clone(), terms, orders
    slack = _slack(keys.dtype, N)
    for b in range(B):
        units = sharpness[b].sqrt()
        orders[b] = torch.cat([tree_order(side[b], units).flatten() for side in (queries, keys)])
        pairs = _pairs(queries[b], keys[b], bias[b], sharpness[b], orders[b])
        reach = pairs.reach()
        found = _logsumexps(pairs, reach, slack)
        if found is None:
            alone = (t[b : b + 1] for t in (queries, keys, bias, sharpness))
            terms[b], orders[b] = torch.cat(chunked.logsumexp(*alone)), ALL_PAIRS
            lse[b] = terms[b, 0]
            continue
        pairs.x.fill(found, terms[b].mT)
        lse[b] = _highest(bias[b]) + BIT * terms[b, 0]
    return lse, terms, orders


def _logsumexps(pairs: Pairs, reach: Tensor, slack: float) -> Tensor | None:
    """Of the queries, and what was lost of each when it was rounded: [X, S, 2]; NaN of none.

    None if too many pairs matter. If all are next to 0, none is from products.
    """
    least = reach.amin(dim=1)
    near = pairs.near(least)
    for by_products in (near, None) if near.any() else (None,):
        visits = pairs.visits(least, slack, LARGEST_SHARE, by_products)
        if visits is None:
            return None
        found = reach.new_full((*reach.shape, 2), math.nan)
        for visit in visits:
            place = visit.rows, visit.part
            found[place] = torch.stack(_sums(pairs.tile(visit), reach[place], slack), dim=-1)
        if found[..., 0].nan_to_num(posinf=0.0, neginf=0.0).abs().amax() >= LITTLE:
            break
    return found


def _sums(tile: Tile, reach: Tensor, slack: float) -> tuple[Tensor, Tensor]:
    """``log2 sum_j 2^score_ij`` and what was lost of it when it was rounded, both [G, S]."""
    level, scores = tile.relative(reach)
    above = exp2_above_(scores, -slack).sum(dim=-1).log2()
    lse = level + above
    return lse, torch.where(lse.isfinite(), above - (lse - level), 0.0)


def logsumexp_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor,
    terms: Tensor,
    orders: Tensor,
    need_queries: bool,
    need_keys: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to queries, keys and bias; what is not needed comes back without elements."""
    lse, rest = terms.unbind(dim=1)
    d_queries = torch.zeros_like(queries if need_queries else queries[:, :0])
    d_keys, d_bias = torch.zeros_like(keys if need_keys else keys[:, :0]), torch.zeros_like(bias)
    for b, weights in enumerate(_weights(grad, queries, keys, bias, sharpness, terms, orders)):
        if weights is None:
            tensors = grad, queries, keys, bias, sharpness, lse, rest
            g, q, k, c, s, level, lost = (t[b : b + 1] for t in tensors)
            found = chunked.logsumexp_backward(g, q, k, c, s, level, lost, need_queries, need_keys)
            for result, of_set in zip((d_queries, d_keys, d_bias), found, strict=True):
                result[b] = of_set[0]
            continue
        of_queries, of_keys = _pulls(weights, need_queries)
        slope, pairs = 2 * sharpness[b], weights.pairs
        if need_queries:
            pairs.x.fill(slope * of_queries, d_queries[b])
        if need_keys:
            pairs.y.fill(slope * of_keys[..., :-1], d_keys[b])
        pairs.y.fill(of_keys[..., -1], d_bias[b])
    return d_queries, d_keys, d_bias


def sharpness_gradient(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor,
    terms: Tensor,
    orders: Tensor,
) -> Tensor:
    """``-sum_ij g_i p_ij (queries_if - keys_jf)^2``, shape [B, D]."""
    operands = queries, keys, bias, sharpness
    total = torch.zeros_like(sharpness)
    for b, weights in enumerate(_weights(grad, *operands, terms, orders)):
        if weights is None:
            alone = (t[b : b + 1] for t in (grad, *operands))
            total[b] = chunked.sharpness_gradient(*alone)[0]
            continue
        for visit, tile, p in weights.tiles(products=False):
            total[b] -= tile.squares(p, weights.incoming[visit.rows, visit.part])
    return total


@dataclass
class Weights:
    """Softmax weights ``p_ij = 2^(score_ij - level_i)`` of the pairs of one set that matter."""

    pairs: Pairs
    level: Tensor  # [X, S], the logsumexp of each query
    incoming: Tensor  # [X, S], its gradient
    slack: float

    def tiles(self, *, products: bool) -> Iterator[tuple[Visit, Tile, Tensor]]:
        """Of every visit, with its weights, in memory that is used again.

        Scores are from ``products`` where these are precise enough, or all from differences.
        """
        least = self.level.amin(dim=1)
        near = self.pairs.near(least) if products else None
        visits = self.pairs.visits(least, self.slack, 1.0, near)
        assert visits is not None  # a share of 1 is never exceeded
        level = finite(self.level)
        for visit in visits:
            tile = self.pairs.tile(visit)
            below = tile.below(level[visit.rows, visit.part])
            yield visit, tile, exp2_above_(below, -self.slack)


def _weights(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor,
    terms: Tensor,
    orders: Tensor,
) -> Iterator[Weights | None]:
    """Of each set; None where all pairs are to be computed."""
    slack = _slack(keys.dtype, keys.shape[1])
    lse, rest = terms.unbind(dim=1)
    for b in range(len(queries)):
        if orders[b, 0] == ALL_PAIRS:
            yield None
            continue
        pairs = _pairs(queries[b], keys[b], bias[b], sharpness[b], orders[b])
        incoming = (grad[b] * torch.exp2(-rest[b]))[pairs.x.order].masked_fill(~pairs.x.own, 0.0)
        yield Weights(pairs, lse[b, pairs.x.order], incoming, slack)


def _pulls(weights: Weights, need_queries: bool) -> tuple[Tensor, Tensor]:
    """What weighs on the queries [X, S, D], if needed, and on the keys [Y, R, D + 1]."""
    x, y = weights.pairs.x, weights.pairs.y
    D, (Y, R) = x.points.shape[2], y.bias.shape
    of_queries = torch.zeros_like(x.points)
    of_keys = y.points.new_zeros(Y + 1, D + 1, R)  # the last is the block of none
    for visit, tile, p in weights.tiles(products=not need_queries):
        place = visit.rows, visit.part
        of_x, of_y = tile.pulls(p, weights.incoming[place], need_queries)
        if of_x is not None:
            of_queries[place] = of_x
        of_each = of_y.unflatten(-1, (-1, R)).transpose(1, 2).flatten(0, 1)
        of_keys.index_add_(0, visit.columns.flatten(), of_each)
    return of_queries, of_keys[:Y].mT


def _pairs(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor, orders: Tensor) -> Pairs:
    """Of one set, in its orders; scores are in bits, relative to the highest bias.

    A bias is the cost of an output, below 0. So none grows by that, and each loses fewer digits.
    """
    x_shape, y_shape = blocks_shape(len(queries)), blocks_shape(len(keys))
    x_order, y_order = orders.split([math.prod(x_shape), math.prod(y_shape)])
    x = Leaves.of(x_order.view(x_shape), queries, torch.zeros_like(queries[:, 0]))
    y = Leaves.of(y_order.view(y_shape), keys, (bias - _highest(bias)) / BIT)
    return Pairs(x, y, sharpness / BIT)


def _highest(bias: Tensor) -> Tensor:
    """Of the admissible ones, if there are any."""
    return finite(bias.amax(dim=-1))


def _are_points(queries: Tensor, keys: Tensor, bias: Tensor) -> bool:
    """Whether coordinates are finite, and so is the bias, but for keys that are not admissible."""
    return bool(queries.isfinite().all() & keys.isfinite().all() & (bias < math.inf).all())


def _slack(dtype: torch.dtype, N: int) -> float:
    """How many bits less than the largest score, or a logsumexp, of N one may be left out."""
    return BITS[dtype] + math.log2(N)
