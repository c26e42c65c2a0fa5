"""The chunked engine: any device, one tile of scores in memory at a time.

Legend: B sets, M queries, N keys, F features. A score is ``s_ij = queries_i . keys_j + bias_j``
and its softmax weight ``p_ij = exp(s_ij - lse_i)``, where ``lse_i = logsumexp_j s_ij``. With a
``sharpness`` [B, D] the first D features are compared, not multiplied; see `reference`.

These are plain functions of tensors without autograd; `operators` ties them together. Each
visits the tiles in a fixed order, so results are the same from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from setwise.kernels import differences, reference
from setwise.kernels.powers import exp_

# Queries, keys, bias and sharpness.
Operands = tuple[Tensor, Tensor, Tensor, Tensor | None]

# A tile of scores is reread several times while it is reduced: 2^18 floats stay in a core's cache.
TILE_SCORES = 2**18
TILE_KEYS = 512


def _steps(size: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def _query_blocks(queries: Tensor, keys: Tensor) -> Iterator[tuple[slice, slice]]:
    """Slices (sets, queries) whose scores against one tile of keys fill a tile."""
    B, M, _ = queries.shape
    tile_keys = min(keys.shape[1], TILE_KEYS)
    queries_at_once = max(1, min(M, TILE_SCORES // tile_keys))
    sets = max(1, TILE_SCORES // (queries_at_once * tile_keys))
    for b in _steps(B, sets):
        for i in _steps(M, queries_at_once):
            yield b, i


def _key_blocks(keys: Tensor) -> Iterator[slice]:
    return _steps(keys.shape[1], TILE_KEYS)


def _tile(operands: Operands, b: slice, i: slice, j: slice) -> Tensor:
    queries, keys, bias, sharpness = operands
    if sharpness is not None:
        return reference.scores(queries[b, i], keys[b, j], bias[b, j], sharpness[b])
    return torch.baddbmm(bias[b, None, j], queries[b, i], keys[b, j].transpose(1, 2))


def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``lse_i`` [B, M], and by how much it was rounded: the exact one is the sum of both.

    Softmax weights depend on differences of scores. If scores are so large that they are more than
    1 apart from the next number, what was rounded decides whether the weights add up to 1.
    """
    operands = queries, keys, bias, sharpness
    lse, rest = (queries.new_empty(queries.shape[:2]) for _ in range(2))
    for b, i in _query_blocks(queries, keys):
        top = queries.new_full(lse[b, i].shape, -math.inf)
        total = torch.zeros_like(top)
        for j in _key_blocks(keys):
            tile = _tile(operands, b, i, j)
            higher = torch.maximum(top, tile.amax(dim=-1))
            anchor = higher.masked_fill(higher == -math.inf, 0.0)
            total *= torch.exp(top - anchor)
            total += exp_(tile.sub_(anchor.unsqueeze(-1))).sum(dim=-1)
            top = higher
        above = total.log()
        lse[b, i] = top + above
        rest[b, i] = torch.where(lse[b, i].isfinite(), above - (lse[b, i] - top), 0.0)
    return lse, rest


def _weights(operands: Operands, lse: Tensor, b: slice, i: slice, j: slice) -> Tensor:
    """``exp(s_ij - lse_i)`` of one tile; a query without any admissible key weighs nothing.

    To be multiplied by ``exp(-rest_i)``, which takes less time where there is no tile.
    """
    floor = lse[b, i].masked_fill(lse[b, i] == -math.inf, 0.0)
    return exp_(_tile(operands, b, i, j).sub_(floor.unsqueeze(-1)))


def logsumexp_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor | None,
    lse: Tensor,
    rest: Tensor,
    need_queries: bool,
    need_keys: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to queries, keys and bias of ``sum_i grad_i lse_i``.

    ::

        d queries_i = g_i sum_j p_ij keys_j
        d keys_j    = sum_i g_i p_ij queries_i        d bias_j = sum_i g_i p_ij

    and, of features that are compared, ``-2 sharpness`` times the sums of differences. What is not
    needed comes back with no elements at all.
    """
    operands = queries, keys, bias, sharpness
    d_queries = queries.new_zeros((queries if need_queries else queries[:, :0]).shape)
    d_keys = keys.new_zeros((keys if need_keys else keys[:, :0]).shape)
    d_bias = bias.new_zeros(bias.shape)
    incoming = grad * torch.exp(-rest)
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            p = _weights(operands, lse, b, i, j).mul_(incoming[b, i, None])
            x, y = queries[b, i], keys[b, j]
            c = None if sharpness is None else sharpness[b]
            if need_queries:
                d_queries[b, i] += _pulled(p, x, y, y, c)
            if need_keys:
                d_keys[b, j] += _pulled(p.transpose(1, 2), y, x, x, c)
            d_bias[b, j] += p.sum(dim=1)
    return d_queries, d_keys, d_bias


def _pulled(p: Tensor, x: Tensor, y: Tensor, v: Tensor, sharpness: Tensor | None) -> Tensor:
    """``sum_j p_ij v_j``, and of compared features ``-2 c sum_j p_ij (x_i - y_j)``."""
    if sharpness is None:
        return torch.bmm(p, v)
    D = sharpness.shape[1]
    towards = -2 * sharpness.unsqueeze(1) * differences.pulls(p, x[..., :D], y[..., :D])
    return torch.cat([towards, torch.bmm(p, v[..., D:])], dim=-1)


def sharpness_gradient(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor,
) -> Tensor:
    """``-sum_ij g_i p_ij (queries_if - keys_jf)^2``, shape [B, D]."""
    D = sharpness.shape[1]
    operands = queries, keys, bias, sharpness
    lse, rest = logsumexp(*operands)
    incoming = grad * torch.exp(-rest)
    total = torch.zeros_like(sharpness)
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            p = _weights(operands, lse, b, i, j).mul_(incoming[b, i, None])
            x, y = queries[b, i, :D], keys[b, j, :D]
            total[b] -= differences.moments(p, x, y, x, y)
    return total


def logsumexp_double_backward(
    u: Tensor | None,
    v: Tensor | None,
    w: Tensor,
    h: Tensor | None,
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients to grad, queries, keys, bias and sharpness of the backward pass itself.

    With cotangents ``u`` of d_queries, ``v`` of d_keys, ``w`` of d_bias and ``h`` of d_sharpness,
    the function to differentiate is ``sum_i g_i q_i`` where ``q_i = sum_j p_ij c_ij``, and ``c_ij``
    is the derivative of the score in their direction: ``u_i . keys_j + v_j . queries_i + w_j``.
    Its derivative by the score is ``r_ij = g_i p_ij (c_ij - q_i)``. The mean ``q_i`` must be known
    before ``r_ij``, hence two passes over the tiles. Of compared features the score is ``-c (x -
    y)^2``, with x and y for queries and keys, and its derivative ``-2 c (x - y) (u - v) - h (x -
    y)^2``.
    """
    u = torch.zeros_like(queries) if u is None else u
    v = torch.zeros_like(keys) if v is None else v
    operands = queries, keys, bias, sharpness
    lse, rest = logsumexp(*operands)
    unit = torch.exp(-rest)
    incoming = grad * unit
    D = 0 if sharpness is None else sharpness.shape[1]
    # c_ij of the other features is itself a score: of [u, queries] against [keys, v] with bias w.
    left, right = (
        torch.cat([a[..., D:], b[..., D:]], dim=-1) for a, b in ((u, queries), (keys, v))
    )

    def directional(b: slice, i: slice, j: slice) -> Tensor:
        c = _tile((left, right, w, None), b, i, j)
        if sharpness is not None:
            x, y = queries[b, i, :D], keys[b, j, :D]
            c -= 2 * differences.products(x, y, u[b, i, :D], v[b, j, :D], sharpness[b])
            if h is not None:
                c -= differences.squares(x, y, h[b])
        return c

    mean = grad.new_zeros(grad.shape)
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            p = _weights(operands, lse, b, i, j)
            mean[b, i] += p.mul_(directional(b, i, j)).sum(dim=-1)
    mean *= unit

    d_queries, d_keys, d_bias = (t.new_zeros(t.shape) for t in (queries, keys, bias))
    d_sharpness = grad.new_zeros(len(grad), D)
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            p = _weights(operands, lse, b, i, j).mul_(incoming[b, i, None])
            r = directional(b, i, j).sub_(mean[b, i, None]).mul_(p)
            x, y, s, t = queries[b, i], keys[b, j], u[b, i], v[b, j]
            c = None if sharpness is None else sharpness[b]
            d_queries[b, i] += _pulled(r, x, y, y, c) + _pulled(p, s, t, t, c)
            d_keys[b, j] += _pulled(r.mT, y, x, x, c) + _pulled(p.mT, t, s, s, c)
            d_bias[b, j] += r.sum(dim=1)
            if sharpness is not None:
                x, y, s, t = (part[..., :D] for part in (x, y, s, t))
                d_sharpness[b] -= differences.moments(r, x, y, x, y)
                d_sharpness[b] -= 2 * differences.moments(p, x, y, s, t)
                if h is not None:
                    turned = -2 * h[b].unsqueeze(1)
                    d_queries[b, i, :D] += turned * differences.pulls(p, x, y)
                    d_keys[b, j, :D] += turned * differences.pulls(p.mT, y, x)
    return mean, d_queries, d_keys, d_bias, d_sharpness


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None = None) -> Tensor:
    """``argmax_j s_ij``, shape [B, M]; the first of equals."""
    operands = queries, keys, bias, sharpness
    best = queries.new_full(queries.shape[:2], -math.inf)
    index = torch.zeros(queries.shape[:2], dtype=torch.long, device=queries.device)
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            value, where = _tile(operands, b, i, j).max(dim=-1)
            better = (value > best[b, i]) | value.isnan()  # NaN wins, so that it is seen
            best[b, i] = torch.where(better, value, best[b, i])
            index[b, i] = torch.where(better, where + j.start, index[b, i])
    return index
