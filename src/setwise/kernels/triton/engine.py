"""The Triton engine: which kernel serves a shape, with which tiles, on how large a grid.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``.

Functions of tensors without autograd, as in `chunked`. Sums are always formed in the same order, so
the same call gives the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from setwise.kernels.triton import points, products
from setwise.kernels.triton.launch import launch
from setwise.kernels.triton.skipping import matters, peaks_shape, tiles_to_visit
from setwise.kernels.triton.tiles import (
    backward_tiles,
    blocks_in,
    forward_tiles,
    power_of_2,
    shared_memory,
    split_walk,
)


def logsumexp(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    record: bool,
    columns: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``logsumexp_j score_ij`` in float32, shape [B, M]; ``columns`` are those of the keys.

    To ``record`` also gives, where it pays to skip tiles in the backward pass, the peaks that
    `skipping` knows them by.
    """
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    B, M, F = queries.shape
    N = keys.shape[1]
    tiles = forward_tiles(M, N, F, queries.dtype)
    programs = blocks_in(M, tiles.a)
    splits, per_split = split_walk(queries.device, B * programs, N, tiles.c)
    lse = torch.empty(splits, B, M, device=queries.device)
    peaks = None
    constants: dict[str, Any] = {"F": F, "BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
    if F <= points.MAX_FEATURES:
        kernel, keys = points.logsumexp, _columns(keys) if columns is None else columns
        tensors: tuple[Tensor, ...] = (queries, keys, bias, lse)
        numbers: tuple[int, ...] = (M, N, keys.shape[2], per_split, B)
    else:
        shape = peaks_shape(B, M, N, F) if record else None
        peaks = None if shape is None else torch.empty(shape, device=queries.device)
        kernel, numbers = products.logsumexp, (M, N, per_split, B)
        tensors = (queries, keys, bias, lse, lse if peaks is None else peaks)
        constants |= {"BLOCK_F": tiles.f, "PRECISION": precision(), "RECORDED": peaks is not None}
    grid = (programs * B, splits, 1)
    launch(kernel, grid, tensors, numbers, constants, tiles.warps, tiles.stages)
    return lse[0] if splits == 1 else torch.logsumexp(lse, dim=0), peaks


def logsumexp_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    lse: Tensor,
    peaks: Tensor | None,
    need_queries: bool,
    need_keys: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to queries, keys and bias; what is not needed comes back with no rows at all."""
    grad, queries, keys, bias = (t.contiguous() for t in (grad, queries, keys, bias))
    per_query = (grad, grad.shape[1], 1, 1.0)
    # The gradient of the bias comes from the same walk as that of the keys, and is always wanted.
    d_keys, d_bias = gradients(keys, queries, bias, lse, per_query, owns_keys=True, peaks=peaks)
    d_queries = queries[:, :0].clone()
    if need_queries:
        d_queries, _ = gradients(queries, keys, lse, bias, per_query, owns_keys=False, peaks=peaks)
    return d_queries, d_keys if need_keys else keys[:, :0].clone(), d_bias


def argmax(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]."""
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    B, M, F = queries.shape
    N = keys.shape[1]
    tiles = forward_tiles(M, N, F, queries.dtype)
    index = torch.empty(B, M, dtype=torch.long, device=queries.device)
    constants: dict[str, Any] = {"F": F, "BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
    if F <= points.MAX_FEATURES:
        kernel, keys = points.argmax, _columns(keys)
        numbers: tuple[int, ...] = (M, N, keys.shape[2])
    else:
        kernel, numbers = products.argmax, (M, N)
        constants |= {"BLOCK_F": tiles.f, "PRECISION": precision()}
    grid = (blocks_in(M, tiles.a) * B, 1, 1)
    launch(
        kernel, grid, (queries, keys, bias, index), numbers, constants, tiles.warps, tiles.stages
    )
    return index


def bernoulli_logsumexp(
    target: Tensor, logits: Tensor, valid: Tensor | None, record: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """``bias_j = -sum softplus(logits_j)``, -inf where not valid; logsumexp with it, and its peaks.

    Above the precision of tf32 all are relative to a last result, a number [B, 1] for each set,
    else None. The bias of many features is large, the differences between outputs are not; at the
    size of the bias, forward and backward would round the same score to different neighbours.
    """
    B, N, F = logits.shape
    centred = F > points.MAX_FEATURES and precision() != "tf32" and N > 0
    bias = torch.empty(
        B, N, device=logits.device, dtype=torch.float64 if centred else torch.float32
    )
    mask = bias if valid is None else valid.view(torch.uint8)
    constants: dict[str, Any] = {"MASKED": valid is not None, "F": F}
    if F <= points.MAX_FEATURES:
        columns = logits.new_empty(B, F, 16 * blocks_in(N, 16))
        grid, numbers = (blocks_in(N, 512) * B, 1, 1), (N, columns.shape[2])
        tensors = (logits, mask, bias, columns)
        launch(points.prepare, grid, tensors, numbers, constants | {"BLOCK": 512}, 4, 1)
        return bias, *logsumexp(target, logits, bias, record, columns), None
    # Few steps, for each rounds at the size of the total.
    block_f = min(power_of_2(F), 2048)
    block_a = 2048 // block_f
    constants |= {"BLOCK_A": block_a, "BLOCK_F": block_f}
    grid = (blocks_in(B * N, block_a), 1, 1)
    launch(products.bernoulli_bias, grid, (logits, mask, bias), (B * N,), constants, 4, 1)
    if not centred:
        return bias, *logsumexp(target, logits, bias, record), None
    finite = torch.finfo(torch.float32).min  # where no output is valid
    centre = bias.amax(dim=1, keepdim=True).clamp_(min=finite)
    bias = (bias - centre).float()
    return bias, *logsumexp(target, logits, bias, record), centre.float()


def gradients(
    owners: Tensor,
    others: Tensor,
    owner_term: Tensor,
    other_term: Tensor,
    incoming: tuple[Tensor, int, int, float],
    *,
    owns_keys: bool,
    sigmoid: bool = False,
    weight: Tensor | None = None,
    peaks: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradient of the owners, and of the bias if they are keys; see `products.gradients`.

    ``incoming`` is the gradient of query i of set b as (SCALE, scale_set, scale_row, factor). With
    the ``peaks`` of the forward pass, tiles that cannot matter are skipped.
    """
    B, n_a, F = owners.shape
    n_c = others.shape[1]
    scale, *strides, factor = incoming
    half = sigmoid and precision() == "tf32"
    room = shared_memory(owners.device)
    tiles = backward_tiles(n_a, n_c, F, owners.dtype, precision(), half, room)
    programs, chunks = blocks_in(n_a, tiles.a), blocks_in(F, tiles.d)
    # The share of the sigmoid is added once, at the end of a walk, which must then be whole.
    splits, per_split = (
        (1, n_c) if sigmoid else split_walk(owners.device, B * programs * chunks, n_c, tiles.c)
    )
    tensors: tuple[Tensor, ...]
    numbers: tuple[int | float, ...]
    kind = owners.dtype if splits == 1 else torch.float32
    d_owners = torch.empty(splits, B, n_a, F, device=owners.device, dtype=kind)
    d_bias = torch.empty(splits, B, n_a, device=owners.device)
    constants: dict[str, Any] = {
        "OWNS_KEYS": owns_keys,
        "SIGMOID": sigmoid,
        "WEIGHTED": weight is not None,
    }
    terms = (owner_term, other_term, scale, scale if weight is None else weight)
    results = (d_owners, d_bias)
    if F <= points.MAX_FEATURES:
        kernel, others = points.gradients, _columns(others)
        tensors = (owners, others, *terms, *results)
        numbers = (n_a, n_c, others.shape[2], per_split, B, *strides, factor)
        constants |= {"F": F, "BLOCK_A": tiles.a, "BLOCK_C": tiles.c}
    else:
        second, others_t = _second_operand(others, half)
        scaled = others_t.dtype == torch.float16
        largest = scale
        if scaled and owns_keys:
            largest = scale if scale.numel() == 1 else scale.abs().amax()
            largest = largest if weight is None else largest * weight.amax()
        visits = None
        if peaks is not None:
            lse, M, N = (other_term, n_c, n_a) if owns_keys else (owner_term, n_a, n_c)
            per_query = weight if weight is not None else scale if strides[1] else None
            kept = matters(peaks, lse, per_query, N)
            visits = tiles_to_visit(kept, M, N, F, tiles, owns_keys, per_split)
        kernel = products.gradients
        tensors = (owners, others, others_t, *terms, largest, *(visits or (scale, scale)), *results)
        numbers = (n_a, n_c, per_split, B, *strides, factor)
        constants |= {
            "SECOND": second,
            "SCALED": scaled,
            "WHOLE": splits == 1,
            "LISTED": visits is not None,
            "F": F,
            "BLOCK_A": tiles.a,
            "BLOCK_C": tiles.c,
        }
        constants |= {"BLOCK_F": tiles.f, "BLOCK_D": tiles.d, "PRECISION": precision()}
    grid = (programs * B, splits * chunks, 1)
    launch(kernel, grid, tensors, numbers, constants, tiles.warps, tiles.stages)
    if splits == 1:
        return d_owners[0], d_bias[0]
    total, weight = d_owners.sum(dim=0), d_bias.sum(dim=0)
    if not owns_keys and F > points.MAX_FEATURES:
        total = total / weight.masked_fill(weight == 0, 1.0).unsqueeze(-1)
    return total.to(owners.dtype), weight


def precision() -> str:
    """How float32 products are formed, from PyTorch's own setting for matrix products.

    PyTorch has an older setting of three levels and a newer one per backend, and lets only one of
    them be read once the newer has been used.
    """
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
    return {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}[older]


def _columns(elements: Tensor) -> Tensor:
    """Elements [B, n, F] as [B, F, n], rows padded so that wide loads stay aligned."""
    B, n, F = elements.shape
    if n % 16 == 0:
        return elements.mT.contiguous()
    columns = elements.new_empty(B, F, 16 * blocks_in(n, 16))
    columns[:, :, :n] = elements.mT
    return columns


def _second_operand(others: Tensor, half: bool) -> tuple[str, Tensor]:
    """How `products.gradients` gets the operand of its second product; see there.

    ``half`` allows a copy in float16: the others are probabilities, and precision is that of tf32.
    """
    if others.dtype != torch.float32 or others.shape[1] < 64 or precision() == "ieee":
        return "same", others
    if half:
        return "half", others.half()
    return "transposed", others.mT.contiguous()
