"""The Triton engine: which kernel serves a shape, with which tiles, on how large a grid.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``.

Plain functions of contiguous tensors without autograd, as in `chunked`. Sums are always formed in
the same order, so the same call gives the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
from torch import Tensor

from setwise.kernels.triton import points, products

# A grid is split over the walked-over side until it has this many programs per multiprocessor.
PROGRAMS_PER_PROCESSOR = 2


@dataclass(frozen=True)
class Tiles:
    """Block sizes of one launch: owners, others, features per step, features per output."""

    a: int
    c: int
    f: int
    d: int
    warps: int
    stages: int


def logsumexp(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``logsumexp_j score_ij`` in float32, shape [B, M]."""
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    B, M, F = queries.shape
    N = keys.shape[1]
    tiles = forward_tiles(M, N, F, queries.dtype)
    splits, per_split = _splits(queries, B * triton.cdiv(M, tiles.a), N, tiles.c)
    lse = torch.empty(splits, B, M, device=queries.device)
    grid = (triton.cdiv(M, tiles.a), B, splits)
    if F <= points.MAX_FEATURES:
        keys_t = _columns(keys)
        points.logsumexp[grid](
            queries, keys_t, bias, lse, M, N, keys_t.shape[2], per_split, B,
            F=F, BLOCK_A=tiles.a, BLOCK_C=tiles.c, num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    else:
        products.logsumexp[grid](
            queries, keys, bias, lse, M, N, per_split, B,
            F=F, BLOCK_A=tiles.a, BLOCK_C=tiles.c, BLOCK_F=tiles.f,
            PRECISION=precision(), num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    return lse[0] if splits == 1 else torch.logsumexp(lse, dim=0)


def logsumexp_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    lse: Tensor,
    need_queries: bool,
    need_keys: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to queries, keys and bias; what is not needed comes back with no rows at all."""
    grad, queries, keys, bias = (t.contiguous() for t in (grad, queries, keys, bias))
    d_queries, d_keys = queries[:, :0].clone(), keys[:, :0].clone()
    # The gradient of the bias comes from the same walk as that of the keys, and is always wanted.
    d_keys_too, d_bias = _gradients(keys, queries, bias, lse, grad, owns_keys=True, sigmoid=False)
    if need_keys:
        d_keys = d_keys_too
    if need_queries:
        d_queries, _ = _gradients(queries, keys, lse, bias, grad, owns_keys=False, sigmoid=False)
    return d_queries, d_keys, d_bias


def bernoulli_bias(logits: Tensor, valid: Tensor | None) -> Tensor:
    """``-sum softplus(logits)`` [B, N], and -inf where not valid."""
    B, N, F = logits.shape
    bias = torch.empty(B, N, device=logits.device)
    block_f = min(triton.next_power_of_2(F), 256)
    block_a = max(1, 2048 // block_f)
    products.bernoulli_bias[(triton.cdiv(B * N, block_a),)](
        logits, bias if valid is None else valid, bias, B * N,
        MASKED=valid is not None, F=F, BLOCK_A=block_a, BLOCK_F=block_f,
    )  # fmt: skip
    return bias


def bernoulli_backward(
    grad: Tensor, queries: Tensor, logits: Tensor, bias: Tensor, lse: Tensor
) -> Tensor:
    """Gradient to the logits where ``bias = bernoulli_bias(logits)``, both shares at once."""
    return _gradients(logits, queries, bias, lse, grad.contiguous(), owns_keys=True, sigmoid=True)[
        0
    ]


def argmax(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]."""
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    B, M, F = queries.shape
    N = keys.shape[1]
    tiles = forward_tiles(M, N, F, queries.dtype)
    index = torch.empty(B, M, dtype=torch.long, device=queries.device)
    grid = (triton.cdiv(M, tiles.a), B)
    if F <= points.MAX_FEATURES:
        keys_t = _columns(keys)
        points.argmax[grid](
            queries, keys_t, bias, index, M, N, keys_t.shape[2],
            F=F, BLOCK_A=tiles.a, BLOCK_C=tiles.c, num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    else:
        products.argmax[grid](
            queries, keys, bias, index, M, N, F=F, BLOCK_A=tiles.a, BLOCK_C=tiles.c,
            BLOCK_F=tiles.f, PRECISION=precision(),
            num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    return index


def _gradients(
    owners: Tensor,
    others: Tensor,
    owner_term: Tensor,
    other_term: Tensor,
    grad: Tensor,
    *,
    owns_keys: bool,
    sigmoid: bool,
) -> tuple[Tensor, Tensor]:
    B, n_a, F = owners.shape
    n_c = others.shape[1]
    tiles = backward_tiles(n_a, n_c, F, owners.dtype)
    chunks = triton.cdiv(F, tiles.d)
    splits, per_split = _splits(owners, B * triton.cdiv(n_a, tiles.a) * chunks, n_c, tiles.c)
    if sigmoid:  # its share is added once, at the end of a walk
        splits, per_split = 1, n_c
    kind = owners.dtype if splits == 1 else torch.float32
    d_owners = torch.empty(splits, B, n_a, F, device=owners.device, dtype=kind)
    d_bias = torch.empty(splits, B, n_a, device=owners.device)
    grid = (triton.cdiv(n_a, tiles.a), B, splits * chunks)
    if F <= points.MAX_FEATURES:
        others_t = _columns(others)
        points.gradients[grid](
            owners, others_t, owner_term, other_term, grad, d_owners, d_bias,
            n_a, n_c, others_t.shape[2], per_split, B,
            OWNS_KEYS=owns_keys, SIGMOID=sigmoid, F=F,
            BLOCK_A=tiles.a, BLOCK_C=tiles.c, num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    else:
        second, others_t = _second_operand(others, probabilities=sigmoid)
        largest = grad.abs().amax() if second == "half" else grad
        products.gradients[grid](
            owners, others, others_t, owner_term, other_term, grad, largest, d_owners, d_bias,
            n_a, n_c, per_split, B, OWNS_KEYS=owns_keys, SIGMOID=sigmoid, SECOND=second, F=F,
            BLOCK_A=tiles.a, BLOCK_C=tiles.c, BLOCK_F=tiles.f, BLOCK_D=tiles.d,
            PRECISION=precision(), num_warps=tiles.warps, num_stages=tiles.stages,
        )  # fmt: skip
    if splits == 1:
        return d_owners[0], d_bias[0]
    return d_owners.sum(dim=0).to(owners.dtype), d_bias.sum(dim=0)


def _columns(elements: Tensor) -> Tensor:
    """Elements [B, n, F] as [B, F, n], rows padded so that wide loads stay aligned."""
    B, n, F = elements.shape
    columns = torch.empty(
        B, F, triton.cdiv(n, 16) * 16, device=elements.device, dtype=elements.dtype
    )
    columns[:, :, :n] = elements.mT
    return columns


def _second_operand(others: Tensor, probabilities: bool) -> tuple[str, Tensor]:
    """How `products.gradients` gets the operand of its second product; see there."""
    if others.dtype != torch.float32 or others.shape[1] < 64 or precision() == "ieee":
        return "same", others
    if probabilities and precision() == "tf32":
        return "half", others.half()
    return "transposed", others.mT.contiguous()


def precision() -> str:
    """How float32 products are formed, from PyTorch's own setting for matrix products."""
    return {"highest": "ieee", "high": "tf32x3", "medium": "tf32"}[
        torch.get_float32_matmul_precision()
    ]


def forward_tiles(M: int, N: int, F: int, dtype: torch.dtype) -> Tiles:
    """Block sizes of the forward walk: few large sets or many small ones, few features or many."""
    if F <= points.MAX_FEATURES:
        return Tiles(a=32, c=_fit(N, 128), f=F, d=F, warps=4, stages=2)
    a, c = _fit(M, 128), _fit(N, 128)
    f = min(_fit(F, 4096), 64 if a * c <= 4096 else 32)
    if _fit(F, 4096) <= 64:
        f = _fit(F, 64)
    return Tiles(a=a, c=c, f=f, d=f, warps=_warps(a, c), stages=3)


def backward_tiles(n_a: int, n_c: int, F: int, dtype: torch.dtype) -> Tiles:
    """Block sizes of the backward walk; the sums of all features of an owner stay in registers."""
    if F <= points.MAX_FEATURES:
        return Tiles(a=32, c=_fit(n_c, 128), f=F, d=F, warps=4, stages=2)
    d = _fit(F, 256)
    a, c = _fit(n_a, 128 if d <= 64 else 64), _fit(n_c, 64)
    f = _fit(F, 64) if F <= 64 else 32
    return Tiles(a=a, c=c, f=f, d=d, warps=_warps(a, d), stages=2)


def _fit(size: int, most: int) -> int:
    """The smallest block that a matrix product allows and that holds ``size``, up to ``most``."""
    return min(max(16, triton.next_power_of_2(size)), most)


def _warps(a: int, c: int) -> int:
    return 1 if a * c <= 1024 else 4 if a * c <= 8192 else 8


def _splits(tensor: Tensor, programs: int, walked: int, block: int) -> tuple[int, int]:
    """How often to split the walk so that the grid fills the device, and the length of a piece."""
    wanted = triton.cdiv(PROGRAMS_PER_PROCESSOR * _processors(tensor.device), programs)
    splits = max(1, min(wanted, triton.cdiv(walked, 4 * block)))
    per_split = triton.cdiv(triton.cdiv(walked, splits), block) * block
    return triton.cdiv(walked, per_split), per_split


@cache
def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1  # Triton's interpreter
    return torch.cuda.get_device_properties(device).multi_processor_count
