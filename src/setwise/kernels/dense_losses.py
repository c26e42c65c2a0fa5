"""Any set loss of the built-in families on a CPU: few steps from outputs to gradient.

Legend: B sets, M targets, N outputs, F features.

A step of a training batch takes a CPU about as long to start as to do, and autograd would take
twice as many, so the gradient is computed with the loss. Scores are formed a tile at a time, while
they are in the cache, of some targets and all outputs: a tile knows all that its gradient needs and
is forgotten.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from setwise.kernels import arrays
from setwise.kernels.arrays import Array, Numbers
from setwise.kernels.dense_elements import Elements
from setwise.kernels.row_losses import Blocks, Call

# Numbers of a tile: 2^18 floats stay in a core's cache.
TILE_SCORES = 2**18
# Fewer targets of a set are not worth a walk over its outputs.
FEWEST_TARGETS = 64
# Of a score, or of it over a temperature below 1, by rounding. Measured: with 2^-14,
# gradients are further off than those of differences by over 1e-5 of the largest.
MOST_LOST = 2**-15


@np.errstate(all="ignore")
def prepared(
    blocks: Blocks, target: Tensor, logits: Tensor, temperature: float | Tensor
) -> Elements | None:
    """What `computed` takes, in float64 where points are far apart; None if they are too far."""
    x, z = target.detach().numpy(), logits.detach().numpy()
    # High temperatures even out weights, but not the differences that gradients are made of.
    most_lost = MOST_LOST * min(1.0, float(temperature))
    for dtype in dict.fromkeys((z.dtype, np.dtype(np.float64))):
        elements = Elements(blocks, x.astype(dtype, copy=False), z.astype(dtype, copy=False))
        # What is lost of the largest terms must not show in weights, nor in a loss.
        lost = elements.reach * float(np.finfo(dtype).eps)
        if lost <= most_lost:
            return elements
    return None


@np.errstate(all="ignore")
def computed(
    call: Call, elements: Elements, dtype: torch.dtype, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """The loss and, if wanted, its gradient to the logits, in the type of those."""
    per_set, pulls = (_soft if call.mode == "soft" else _hard)(call, elements, gradient)
    if call.reduction != "none":
        factor = call.factor(len(per_set))
        per_set = np.asarray(per_set.sum() * factor, dtype=per_set.dtype)
    loss = torch.from_numpy(per_set)
    ready = None if pulls is None else torch.from_numpy(elements.gradient(*pulls))
    if loss.dtype != dtype:
        return loss.to(dtype), None if ready is None else ready.to(dtype)
    return loss, ready


# At all outputs: ``sum_i g_ij queries_i`` [B, N, F] and ``sum_i g_ij`` [B, N, 1].
_Pulls = tuple[Array, Array]


def _tiles(elements: Elements) -> list[tuple[slice, slice]]:
    """Slices of sets and of targets; one alone is of everything."""
    (B, M, _), N = elements.queries.shape, elements.keys.shape[1]
    targets = min(M, max(FEWEST_TARGETS, TILE_SCORES // N))
    sets = max(1, TILE_SCORES // (targets * N))
    return [
        (slice(b, b + sets), slice(i, i + targets))
        for b in range(0, B, sets)
        for i in range(0, M, targets)
    ]


def _scores(queries: Array, keys: Array, bias: Array | None) -> Array:
    """Of a tile, [sets, N, targets]: gradients then come out in the order of memory."""
    scores = arrays.matmul(keys, queries.swapaxes(1, 2))
    if bias is not None:
        scores += bias[:, :, None]
    return scores


def _soft(call: Call, elements: Elements, gradient: bool) -> tuple[Array, _Pulls | None]:
    """``-sum_i w_i (t logsumexp_j score_ij / t + base_i)`` [B]."""
    queries, keys, weight = elements.queries, elements.keys, _array(call.weight)
    t, factor = float(call.temperature), -call.factor(len(keys)) if gradient else None
    bias = _barred(elements.bias, call.output_valid, keys)
    tiles = _tiles(elements)
    pulls: _Pulls | None = None
    if len(tiles) == 1:
        values, pulls = _soft_tile(queries, keys, bias, weight, t, factor)
    else:
        values = np.empty(queries.shape[:2], dtype=keys.dtype)
        if gradient:
            pulls = np.zeros_like(keys), np.zeros((*keys.shape[:2], 1), dtype=keys.dtype)
        for b, i in tiles:
            tile = queries[b, i], keys[b], None if bias is None else bias[b]
            of_tile = None if weight is None else weight[b, i]
            values[b, i], found = _soft_tile(*tile, of_tile, t, factor)
            if pulls is not None and found is not None:
                for all_pulls, pull in zip(pulls, found, strict=True):
                    all_pulls[b] += pull
    if t != 1.0:
        values *= t
    if elements.base is not None:
        values += elements.base
    if weight is not None:
        values = values * weight
    return -values.sum(axis=-1), pulls


def _soft_tile(
    queries: Array,
    keys: Array,
    bias: Array | None,
    weight: Array | None,
    temperature: float,
    factor: float | None,
) -> tuple[Array, _Pulls | None]:
    """The logsumexp of each target, and its pulls times a factor and its weight."""
    scores = _scores(queries, keys, bias)
    if temperature != 1.0:
        scores *= 1 / temperature
    # Relative to the largest: softmax weights then add up to 1 however large scores are.
    top = scores.max(axis=1, keepdims=True)
    scores -= top
    powers = arrays.exp_(scores)
    sums = arrays.total(powers, axis=1, keepdims=True)
    values = (top + np.log(sums))[:, 0]
    if factor is None:
        return values, None
    each = factor / sums
    if weight is not None:
        each = (each * weight[:, None]).astype(powers.dtype, copy=False)
    powers *= each
    return values, (arrays.matmul(powers, queries), arrays.total(powers, axis=2, keepdims=True))


def _hard(call: Call, elements: Elements, gradient: bool) -> tuple[Array, _Pulls | None]:
    """The mean, or the largest, of the costs of nearest elements; of both directions if asked."""
    nearest, closest = _nearest(call, elements)
    (B, N, F), M, dtype = elements.keys.shape, elements.queries.shape[1], elements.keys.dtype
    costs = elements.costs(outputs=nearest).reshape(B, M)
    back = None if closest is None else elements.costs(targets=closest).reshape(B, N)
    losses, slopes, slopes_back = (_mean if call.mode == "mean" else _worst)(call, costs, back)
    if not gradient:
        return losses, None
    factor, queries = -call.factor(B), elements.queries.reshape(-1, F)
    pull = (slopes * factor).reshape(-1)
    pulled = np.zeros((B * N, F), dtype=dtype)
    arrays.add_rows(pulled, nearest, queries * pull[:, None])
    total = np.bincount(nearest, pull, minlength=B * N).astype(dtype)
    if closest is not None and slopes_back is not None:
        pull = (slopes_back * factor).reshape(-1)
        pulled += queries.take(closest, axis=0) * pull[:, None]
        total += pull
    return losses, (pulled.reshape(B, N, F), total.reshape(B, N, 1))


def _nearest(call: Call, elements: Elements) -> tuple[Numbers, Numbers | None]:
    """The output nearest to each target [B * M], and the other way round [B * N], of all sets."""
    queries, keys = elements.queries, elements.keys
    (B, M, _), N = queries.shape, keys.shape[1]
    bias = _barred(elements.bias, call.output_valid, keys)
    base = _barred(elements.base, call.target_valid, queries)
    nearest = np.empty((B, M), dtype=np.int64)
    closest = best = None
    if call.both:
        closest = np.zeros((B, N), dtype=np.int64)
        best = np.full((B, N), -np.inf, dtype=keys.dtype)
    for b, i in _tiles(elements):
        scores = _scores(queries[b, i], keys[b], None if bias is None else bias[b])
        nearest[b, i] = scores.argmax(axis=1)
        if closest is None or best is None:
            continue
        # Outputs that are barred find no target, and count nothing.
        if base is not None:
            scores += base[b, None, i]
        where = scores.argmax(axis=2)
        value = np.take_along_axis(scores, where[..., None], axis=2)[..., 0]
        better = value > best[b]
        closest[b] = np.where(better, where + i.start, closest[b])
        best[b] = np.where(better, value, best[b])
    sets = np.arange(B)[:, None]
    nearest += sets * N
    if closest is None:
        return nearest.reshape(-1), None
    closest += sets * M
    return nearest.reshape(-1), closest.reshape(-1)


# Losses [B], and their derivatives to the costs of targets [B, M] and of outputs [B, N].
_Reduced = tuple[Array, Array, Array | None]


def _mean(call: Call, costs: Array, back: Array | None) -> _Reduced:
    losses, slopes = _weighted_mean(costs, _array(call.weight))
    if back is None:
        return losses, slopes, None
    losses_back, slopes_back = _weighted_mean(back, _array(call.share))
    return losses + losses_back, slopes, slopes_back


def _weighted_mean(costs: Array, weight: Array | None) -> tuple[Array, Array]:
    if weight is None:
        weight = np.full_like(costs, 1 / costs.shape[-1])
    return (costs * weight).sum(axis=-1), weight.astype(costs.dtype, copy=False)


def _worst(call: Call, costs: Array, back: Array | None) -> _Reduced:
    """Those that are equally bad share the derivative."""
    weight, share = _array(call.weight), _array(call.share)
    costs = costs if weight is None else costs * weight
    largest = costs.max(axis=-1, keepdims=True)
    if back is None:
        return largest[:, 0], _shared(costs, largest, weight), None
    back = back if share is None else back * share
    largest_back = back.max(axis=-1, keepdims=True)
    of_both = np.maximum(largest, largest_back)
    half = np.where(largest == largest_back, 0.5, 1.0).astype(costs.dtype)
    slopes, slopes_back = _shared(costs, of_both, weight), _shared(back, of_both, share)
    return of_both[:, 0], slopes * half, slopes_back * half


def _shared(costs: Array, largest: Array, weight: Array | None) -> Array:
    hits = costs == largest
    slopes = hits / np.maximum(hits.sum(axis=-1, keepdims=True), 1)
    return (slopes if weight is None else slopes * weight).astype(costs.dtype, copy=False)


def _barred(bias: Array | None, valid: Tensor | None, elements: Array) -> Array | None:
    """The bias [B, _] of elements [B, _, F], -inf of those that are not to be chosen."""
    if valid is None:
        return bias
    zero = elements.dtype.type(0) if bias is None else bias
    return np.where(valid.numpy(), zero, elements.dtype.type(-np.inf))


def _array(tensor: Tensor | None) -> Array | None:
    return None if tensor is None else tensor.detach().numpy()
