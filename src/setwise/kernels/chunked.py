"""The chunked engine: any device, one tile of scores in memory at a time.

Legend: B sets, M queries, N keys, F features. A score is ``s_ij = queries_i . keys_j + bias_j``
and its softmax weight ``p_ij = exp(s_ij - lse_i)``, where ``lse_i = logsumexp_j s_ij``.

These are plain functions of tensors without autograd; `operators` ties them together. Each
visits the tiles in a fixed order, so results are the same from run to run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

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


def _tile(queries: Tensor, keys: Tensor, bias: Tensor, b: slice, i: slice, j: slice) -> Tensor:
    return torch.baddbmm(bias[b, None, j], queries[b, i], keys[b, j].transpose(1, 2))


def logsumexp(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``lse_i``, shape [B, M]."""
    lse = queries.new_full(queries.shape[:2], -math.inf)
    for b, i in _query_blocks(queries, keys):
        block = lse[b, i]
        for j in _key_blocks(keys):
            tile = _tile(queries, keys, bias, b, i, j)
            torch.logaddexp(block, torch.logsumexp(tile, dim=-1), out=block)
    return lse


def _weights(
    queries: Tensor, keys: Tensor, bias: Tensor, lse: Tensor, b: slice, i: slice, j: slice
) -> Tensor:
    """``p_ij`` of one tile; a query without any admissible key weighs nothing."""
    floor = lse[b, i].masked_fill(lse[b, i] == -math.inf, 0.0)
    return _tile(queries, keys, bias, b, i, j).sub_(floor.unsqueeze(-1)).exp_()


def logsumexp_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    lse: Tensor,
    need_queries: bool,
    need_keys: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to queries, keys and bias of ``sum_i grad_i lse_i``.

    ::

        d queries_i = g_i sum_j p_ij keys_j
        d keys_j    = sum_i g_i p_ij queries_i        d bias_j = sum_i g_i p_ij

    What is not needed comes back with no queries_at_once at all.
    """
    d_queries = queries.new_zeros((queries if need_queries else queries[:, :0]).shape)
    d_keys = keys.new_zeros((keys if need_keys else keys[:, :0]).shape)
    d_bias = bias.new_zeros(bias.shape)
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            p = _weights(queries, keys, bias, lse, b, i, j).mul_(grad[b, i, None])
            if need_queries:
                d_queries[b, i].baddbmm_(p, keys[b, j])
            if need_keys:
                d_keys[b, j].baddbmm_(p.transpose(1, 2), queries[b, i])
            d_bias[b, j] += p.sum(dim=1)
    return d_queries, d_keys, d_bias


def logsumexp_double_backward(
    u: Tensor | None,
    v: Tensor | None,
    w: Tensor,
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients to grad, queries, keys and bias of the backward pass itself.

    With cotangents ``u`` of d_queries, ``v`` of d_keys and ``w`` of d_bias, the function to
    differentiate is ``sum_i g_i q_i`` where ``q_i = sum_j p_ij c_ij`` and
    ``c_ij = u_i . keys_j + v_j . queries_i + w_j``. Its derivative by the score is
    ``r_ij = g_i p_ij (c_ij - q_i)``; ``lse`` is not an independent variable here. The mean
    ``q_i`` must be known before ``r_ij``, hence two passes over the tiles.
    """
    u = torch.zeros_like(queries) if u is None else u
    v = torch.zeros_like(keys) if v is None else v
    # c_ij is itself a score: of [u, queries] against [keys, v] with bias w.
    left, right = torch.cat([u, queries], dim=-1), torch.cat([keys, v], dim=-1)

    mean = grad.new_zeros(grad.shape)
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            p = _weights(queries, keys, bias, lse, b, i, j)
            mean[b, i] += p.mul_(_tile(left, right, w, b, i, j)).sum(dim=-1)

    d_queries, d_keys, d_bias = (t.new_zeros(t.shape) for t in (queries, keys, bias))
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            p = _weights(queries, keys, bias, lse, b, i, j).mul_(grad[b, i, None])
            r = _tile(left, right, w, b, i, j).sub_(mean[b, i, None]).mul_(p)
            d_queries[b, i] += r @ keys[b, j] + p @ v[b, j]
            d_keys[b, j] += r.mT @ queries[b, i] + p.mT @ u[b, i]
            d_bias[b, j] += r.sum(dim=1)
    return mean, d_queries, d_keys, d_bias


def argmax(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``argmax_j s_ij``, shape [B, M]; the first of equals."""
    best = queries.new_full(queries.shape[:2], -math.inf)
    index = torch.zeros(queries.shape[:2], dtype=torch.long, device=queries.device)
    for b, i in _query_blocks(queries, keys):
        for j in _key_blocks(keys):
            value, where = _tile(queries, keys, bias, b, i, j).max(dim=-1)
            better = (value > best[b, i]) | value.isnan()  # NaN wins, so that it is seen
            best[b, i] = torch.where(better, value, best[b, i])
            index[b, i] = torch.where(better, where + j.start, index[b, i])
    return index
