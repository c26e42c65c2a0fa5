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
from setwise.kernels.row_losses import Blocks, Call, Mode

# Numbers of a tile: 2^18 floats stay in a core's cache.
TILE_SCORES = 2**18
# Fewer targets of a set are not worth a walk over its outputs.
FEWEST_TARGETS = 64
# Of a score, or of it over a temperature below 1, by rounding. Measured: with 2^-14,
# gradients are further off than those of differences by over 1e-5 of the largest. Of costs that are
# themselves as large as what they are computed from, differences lose as much.
MOST_LOST, MOST_LOST_OF_LARGE = 2**-15, 2**-13.5
# A cost is large if no term of its score is more than so many times as large. It need not be that
# large to be read off a score: see `Elements.correct_`.
LARGE = 2.0
# Scores this far apart, or less, are as precise relative to the largest of them all: the rounding
# of a difference is a millionth.
NEAR = 32.0


@np.errstate(all="ignore")
def prepared(
    blocks: Blocks, mode: Mode, target: Tensor, logits: Tensor, temperature: float | Tensor
) -> Elements | None:
    """What `computed` takes, in float64 where points are far apart; None if they are too far."""
    x, z = target.numpy(force=True), logits.numpy(force=True)
    elements = Elements(blocks, x, z)
    # High temperatures even out weights, but not the differences that gradients are made of.
    cold = min(1.0, float(temperature))
    # What is lost of the largest terms must not show in weights, nor in a loss.
    lost = _lost(elements)
    if lost <= MOST_LOST * cold:
        return elements
    if lost <= MOST_LOST_OF_LARGE * cold and _are_all_far(elements, mode):
        return elements
    if z.dtype == np.float64:
        return None
    elements.widen()
    return elements if _lost(elements) <= MOST_LOST * cold else None


def _lost(elements: Elements) -> float:
    return elements.reach * float(np.finfo(elements.keys.dtype).eps)


def _are_all_far(elements: Elements, mode: Mode) -> bool:
    """Whether no cost, not of a single pair, is small beside what it is computed from."""
    if len(_tiles(elements)) > 1:
        return False  # to look at all of them would take long
    of_tile = elements.queries, elements.keys, elements.bias
    scores = _scores(*of_tile) if mode == "soft" else scores_of_targets(*of_tile)
    largest = scores.max(axis=1 if mode == "soft" else 2)
    if elements.base is not None:
        largest = largest + elements.base
    elements.keep_scores(scores)
    return elements.reach <= -LARGE * float(largest.max())


def scores(elements: Elements, targets: slice, temperature: float) -> Tensor:
    """Those of some targets of each set with all outputs, over a temperature: [B, _, N]."""
    found = _scores(elements.queries[:, targets], elements.keys, elements.bias).swapaxes(1, 2)
    return torch.from_numpy(found / temperature)


@np.errstate(all="ignore")
def computed(
    call: Call, elements: Elements, dtype: torch.dtype, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """The loss and, if wanted, its gradient to the logits, in the type of those."""
    per_set, pulls = reduced(call, elements, gradient)
    if call.reduction != "none":
        factor = call.factor(len(per_set))
        per_set = np.asarray(per_set.sum() * factor, dtype=per_set.dtype)
    loss = torch.from_numpy(per_set)
    ready = None
    if pulls is not None:
        ready = torch.from_numpy(elements.gradient(*pulls))
    if loss.dtype != dtype:
        return loss.to(dtype), None if ready is None else ready.to(dtype)
    return loss, ready


# At all outputs: ``sum_i g_ij queries_i`` [B, N, F] and ``sum_i g_ij`` [B, N, 1].
Pulls = tuple[Array, Array]


def reduced(call: Call, elements: Elements, gradient: bool) -> tuple[Array, Pulls | None]:
    """The losses [B], and their pulls if there is to be a gradient."""
    return (_soft if call.mode == "soft" else _hard)(call, elements, gradient)


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
        arrays.add_(scores, bias[:, :, None])
    return scores


def scores_of_targets(queries: Array, keys: Array, bias: Array | None) -> Array:
    """Those of `_scores`, [sets, targets, N]: the nearest output is then found in a row."""
    scores = arrays.matmul(queries, keys.swapaxes(1, 2))
    if bias is not None:
        arrays.add_(scores, bias[:, None])
    return scores


def _soft(call: Call, elements: Elements, gradient: bool) -> tuple[Array, Pulls | None]:
    """``-sum_i w_i (t logsumexp_j score_ij / t + base_i)`` [B]."""
    queries, keys, weight = elements.queries, elements.keys, _array(call.weight)
    t, factor = float(call.temperature), -call.factor(len(keys)) if gradient else None
    options = t, factor, elements.uses_total
    bias = _barred(elements.bias, call.output_valid, keys)
    tiles = _tiles(elements)
    pulls: Pulls | None = None
    if len(tiles) == 1:
        scores = elements.take_scores() if call.output_valid is None else None
        if scores is None:
            scores = _scores(queries, keys, bias)
        values, pulls = _soft_tile(scores, queries, weight, *options)
    else:
        values = np.empty(queries.shape[:2], dtype=keys.dtype)
        if gradient:
            pulls = np.zeros_like(keys), np.zeros((*keys.shape[:2], 1), dtype=keys.dtype)
        for b, i in tiles:
            scores = _scores(queries[b, i], keys[b], None if bias is None else bias[b])
            of_tile = None if weight is None else weight[b, i]
            values[b, i], found = _soft_tile(scores, queries[b, i], of_tile, *options)
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
    scores: Array,
    queries: Array,
    weight: Array | None,
    temperature: float,
    factor: float | None,
    uses_total: bool,
) -> tuple[Array, Pulls | None]:
    """The logsumexp of each target, and its pulls times a factor and its weight.

    The scores are used up.
    """
    if temperature != 1.0:
        scores *= 1 / temperature
    # Relative to the largest: softmax weights then add up to 1 however large scores are. The
    # largest of all targets will do where scores are near each other.
    least, most = arrays.extremes(scores)
    near = most - least <= NEAR
    top = np.asarray(most, scores.dtype) if near else arrays.largest(scores, axis=1)
    arrays.subtract_(scores, top)
    powers = arrays.exp_(scores, near)
    sums = arrays.total(powers, axis=1, keepdims=True)
    values = (top + np.log(sums))[:, 0]
    if factor is None:
        return values, None
    each = factor / sums
    if weight is not None:
        each = (each * weight[:, None]).astype(powers.dtype, copy=False)
    powers *= each
    return values, (arrays.matmul(powers, queries), _totals(powers, uses_total))


def _totals(pulls: Array, used: bool) -> Array:
    """Of each output, [B, N, targets] -> [B, N, 1]; zeros where no block uses them."""
    if used:
        return arrays.total(pulls, keepdims=True)
    return np.zeros((*pulls.shape[:2], 1), dtype=pulls.dtype)


def _hard(call: Call, elements: Elements, gradient: bool) -> tuple[Array, Pulls | None]:
    """The mean, or the largest, of the costs of nearest elements; of both directions if asked."""
    (B, N, _), M = elements.keys.shape, elements.queries.shape[1]
    outputs, costs, targets, back = _nearest(call, elements)
    if elements.blurs(costs, call.target_valid):
        elements.widen()
        outputs, costs, targets, back = _nearest(call, elements)
    elements.correct_(costs.reshape(-1), _numbers(outputs, N), None)
    if targets is not None and back is not None:
        if call.output_valid is None and call.target_valid is None:
            elements.correct_(back.reshape(-1), None, _numbers(targets, M))
        else:  # what was found of elements that are barred is a cost of nothing
            back = elements.costs(targets=_numbers(targets, M)).reshape(B, N)
    losses, slopes, slopes_back = (_mean if call.mode == "mean" else _worst)(call, costs, back)
    if not gradient:
        return losses, None
    factor = -call.factor(B)
    pull = slopes * factor
    pull_back = None if slopes_back is None else slopes_back * factor
    return losses, _pulled(elements, outputs, pull, targets, pull_back)


def _pulled(
    elements: Elements,
    outputs: Numbers,
    pull: Array,
    targets: Numbers | None,
    pull_back: Array | None,
) -> Pulls:
    """What pulls at outputs, in the way that takes less time for so many."""
    (_, N, F), M = elements.keys.shape, elements.queries.shape[1]
    pulls = _pulls_of_few if M * N * F <= arrays.FEW_PRODUCTS else _pulls_of_many
    return pulls(elements, outputs, pull, targets, pull_back)


def _pulls_of_few(
    elements: Elements,
    outputs: Numbers,
    pull: Array,
    targets: Numbers | None,
    pull_back: Array | None,
) -> Pulls:
    """Those of `_pulls_of_many`, by a matrix of all pairs: fewer steps than to add up rows."""
    (B, N, _), M, dtype = elements.keys.shape, elements.queries.shape[1], elements.keys.dtype
    matrix = np.zeros((B, M, N), dtype=dtype)
    pairs = matrix.reshape(-1)
    pairs[outputs + np.arange(0, B * M * N, N).reshape(B, M)] = pull
    if targets is not None and pull_back is not None:
        rows = np.arange(0, B * M * N, M * N)[:, None] + np.arange(N)
        pairs[targets * N + rows] += pull_back
    matrix = matrix.swapaxes(1, 2)
    return arrays.matmul(matrix, elements.queries), _totals(matrix, elements.uses_total)


def _pulls_of_many(
    elements: Elements,
    outputs: Numbers,
    pull: Array,
    targets: Numbers | None,
    pull_back: Array | None,
) -> Pulls:
    """Of each target [B, M] at its output, and of each output [B, N] by its target."""
    (B, N, F), M, dtype = elements.keys.shape, elements.queries.shape[1], elements.keys.dtype
    queries, numbers, each = elements.queries.reshape(-1, F), _numbers(outputs, N), pull.reshape(-1)
    pulled = np.zeros((B * N, F), dtype=dtype)
    arrays.add_rows(pulled, numbers, queries * each[:, None])
    total = np.bincount(numbers, each, minlength=B * N).astype(dtype)
    if targets is not None and pull_back is not None:
        each = pull_back.reshape(-1)
        pulled += queries.take(_numbers(targets, M), axis=0) * each[:, None]
        total += each
    return pulled.reshape(B, N, F), total.reshape(B, N, 1)


def _numbers(index: Numbers, size: int) -> Numbers:
    """Of elements of a set, [B, _], among those of all sets."""
    return (index + np.arange(0, len(index) * size, size)[:, None]).reshape(-1)


def _nearest(call: Call, elements: Elements) -> tuple[Numbers, Array, Numbers | None, Array | None]:
    """The output nearest to each target and its score, negated, [B, M]; and the other way round."""
    queries, keys = elements.queries, elements.keys
    (B, M, _), N = queries.shape, keys.shape[1]
    bias = _barred(elements.bias, call.output_valid, keys)
    base = _barred(elements.base, call.target_valid, queries)
    outputs, costs = np.empty((B, M), dtype=np.int64), np.empty((B, M), dtype=keys.dtype)
    targets = back = None
    if call.both:
        targets, back = np.empty((B, N), dtype=np.int64), np.empty((B, N), dtype=keys.dtype)
    for b, i in _tiles(elements):
        scores = elements.take_scores() if call.output_valid is None else None
        if scores is None:
            of_tile = None if bias is None else bias[b]
            scores = scores_of_targets(queries[b, i], keys[b], of_tile)
        outputs[b, i], largest = arrays.best_columns(scores)
        np.negative(largest, out=costs[b, i])
        if targets is None or back is None:
            continue
        # Outputs that are barred find no target, and count nothing.
        if base is not None:
            arrays.add_(scores, base[b, i, None])
        where, largest = arrays.best_rows(scores)
        cost = -largest
        if i.start == 0:
            targets[b], back[b] = where, cost
        else:
            better = cost < back[b]
            targets[b] = np.where(better, where + i.start, targets[b])
            back[b] = np.where(better, cost, back[b])
    if elements.base is not None:
        costs -= elements.base
    return outputs, costs, targets, back


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
        share = costs.dtype.type(1 / costs.shape[-1])
        return costs.sum(axis=-1) * share, np.full_like(costs, share)
    return (costs * weight).sum(axis=-1), weight.astype(costs.dtype, copy=False)


def _worst(call: Call, costs: Array, back: Array | None) -> _Reduced:
    """Those that are equally bad share the derivative."""
    weight, share = _array(call.weight), _array(call.share)
    costs = costs if weight is None else costs * weight
    largest = arrays.largest(costs, axis=-1)
    if back is None:
        return largest[:, 0], _shared(costs, largest, weight), None
    back = back if share is None else back * share
    largest_back = arrays.largest(back, axis=-1)
    of_both = np.maximum(largest, largest_back)
    half = np.where(largest == largest_back, 0.5, 1.0).astype(costs.dtype)
    slopes, slopes_back = _shared(costs, of_both, weight), _shared(back, of_both, share)
    return of_both[:, 0], slopes * half, slopes_back * half


def _shared(costs: Array, largest: Array, weight: Array | None) -> Array:
    slopes = (costs == largest).astype(costs.dtype)
    # As many hits as sets may still be two of one set: the worst of another is the other way round.
    shared_by = slopes.sum(axis=-1, keepdims=True)
    if shared_by.max() > 1:
        slopes /= np.maximum(shared_by, 1)
    return slopes if weight is None else (slopes * weight).astype(costs.dtype, copy=False)


def _barred(bias: Array | None, valid: Tensor | None, elements: Array) -> Array | None:
    """The bias [B, _] of elements [B, _, F], -inf of those that are not to be chosen."""
    if valid is None:
        return bias
    zero = elements.dtype.type(0) if bias is None else bias
    return np.where(valid.numpy(), zero, elements.dtype.type(-np.inf))


def _array(tensor: Tensor | None) -> Array | None:
    return None if tensor is None else tensor.detach().numpy()
