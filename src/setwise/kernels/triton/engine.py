"""The Triton engine: kernels as functions of tensors, without autograd, as in `chunked`.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``.

Sums are always formed in the same order, so the same call gives the same bits.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels.triton import plans, points
from setwise.kernels.triton.skipping import matters, peaks_shape, tiles_to_visit
from setwise.kernels.triton.tiles import blocks_in

# The gradient of query i of set b, ``factor SCALE[b scale_set + i scale_row]``, in this order;
# without a SCALE it is the factor alone.
Incoming = tuple[Tensor | None, int, int, float]


def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, record: bool
) -> tuple[Tensor, Tensor | None]:
    """``logsumexp_j score_ij`` in float32, shape [B, M].

    To ``record`` also gives, where it pays to skip tiles in the backward pass, the peaks that
    `skipping` knows them by.
    """
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    lse, peaks, _ = _logsumexp(queries, keys, bias, record)
    return lse, peaks


def _logsumexp(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    record: bool,
    columns: Tensor | None = None,
    weight: Tensor | None = None,
    factor: float | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Logsumexp [B, M] and peaks, as in `logsumexp`; ``columns`` are those of the keys.

    With a ``factor`` also ``factor sum_i weight_i lse_i`` of some queries each, [B, blocks].
    """
    (B, M, F), N = queries.shape, keys.shape[1]
    peaks = None
    shape = peaks_shape(B, M, N, F) if record else None
    if shape is not None:
        peaks = torch.empty(shape, device=queries.device)
    start, grid, _, splits, per_split, _ = plans.logsumexp(
        queries.device, B, M, N, F, queries.dtype, precision(),
        peaks is not None, factor is not None, weight is not None,
    )  # fmt: skip
    lse = torch.empty((B, M) if splits == 1 else (splits, B, M), device=queries.device)
    sums = None
    if factor is not None and splits == 1:
        sums = torch.empty(B, grid[0] // B, device=queries.device)
    multiplier = 0.0 if factor is None else factor
    options = (lse if weight is None else weight, lse if sums is None else sums)
    tail = (per_split, B, multiplier)
    if F <= points.MAX_FEATURES:
        columns = _columns(keys) if columns is None else columns
        start(grid, (queries, columns, bias, lse, *options), (M, N, columns.shape[2], *tail))
    else:
        recorded = lse if peaks is None else peaks
        start(grid, (queries, keys, bias, lse, recorded, *options), (M, N, *tail))
    if splits == 1:
        return lse, peaks, sums
    start, grid = plans.logsumexp_of_pieces(B, M, factor is not None, weight is not None)
    whole = torch.empty(B, M, device=queries.device)
    if factor is not None:
        sums = torch.empty(B, grid[0] // B, device=queries.device)
    tensors = (lse, lse if weight is None else weight, whole, whole if sums is None else sums)
    start(grid, tensors, (M, B, splits, multiplier))
    return whole, peaks, sums


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
    grad, queries, keys, bias, lse = (t.contiguous() for t in (grad, queries, keys, bias, lse))
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
    (B, M, F), N = queries.shape, keys.shape[1]
    index = torch.empty(B, M, dtype=torch.long, device=queries.device)
    start, grid = plans.argmax(B, M, N, F, queries.dtype, precision())
    numbers: tuple[int, ...] = (M, N)
    if F <= points.MAX_FEATURES:
        keys = _columns(keys)
        numbers = (M, N, keys.shape[2])
    start(grid, (queries, keys, bias, index), numbers)
    return index


class BernoulliForward(NamedTuple):
    """The forward pass of set cross entropy: its loss, and what its backward passes want."""

    sums: Tensor  # [B, any]: what adds up to the loss of each set
    bias: Tensor  # [B, N]: -sum softplus(logits_j), -inf where not valid
    lse: Tensor  # [B, M]: logsumexp_j score_ij
    peaks: Tensor | None  # of `skipping`, if recorded
    other_form: Tensor | None  # of the target: its columns or a copy in float16, if prepared


def bernoulli_forward(
    target: Tensor,
    logits: Tensor,
    valid: Tensor | None,
    weight: Tensor | None,
    factor: float,
    record: bool,
    prepare_gradient: bool,
) -> BernoulliForward:
    """``factor sum_i weight_i logsumexp_j(target_i . logits_j - sum softplus(logits_j))``.

    Above the precision of tf32, bias and lse are relative to a common number of each set. The bias
    of many features is large, the differences between outputs are not; at the size of the bias,
    forward and backward would round the same score to different neighbours. Weights depend on
    differences alone.
    """
    bias, columns, other_form = _prepared(target, logits, valid, prepare_gradient)
    if bias.dtype == torch.float32:
        lse, peaks, sums = _logsumexp(target, logits, bias, record, columns, weight, factor)
        assert sums is not None
        return BernoulliForward(sums, bias, lse, peaks, other_form)
    least = torch.finfo(torch.float32).min  # where no output is valid
    centre = bias.amax(dim=1, keepdim=True).clamp_(min=least)
    bias = (bias - centre).float()
    lse, peaks, _ = _logsumexp(target, logits, bias, record)
    sums = _weighted(lse + centre.float(), weight, factor)
    return BernoulliForward(sums, bias, lse, peaks, other_form)


def _prepared(
    target: Tensor, logits: Tensor, valid: Tensor | None, for_gradient: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """In one launch: the bias, columns of logits, and the form of targets that a gradient reads.

    The bias is of float64 above the precision of tf32; forms are None where they are not wanted.
    """
    (B, N, F), M, device = logits.shape, target.shape[1], logits.device
    if F <= points.MAX_FEATURES:
        bias = torch.empty(B, N, device=device)
        columns = form = torch.empty(B, F, 16 * blocks_in(N, 16), device=device)
        if for_gradient:
            form = torch.empty(B, F, 16 * blocks_in(M, 16), device=device)
        start, grid = plans.preparation(B, M, N, F, valid is not None, for_gradient)
        mask = bias if valid is None else valid.view(torch.uint8)
        strides = columns.shape[2], form.shape[2]
        start(
            grid,
            (logits, target, mask, bias, columns, form),
            (N, M, *strides, grid[0] // B),
        )
        return bias, columns, form if for_gradient else None
    level = precision()
    bias = form = torch.empty(
        B, N, device=device, dtype=torch.float32 if level == "tf32" else torch.float64
    )
    second = plans.second_operand(M, F, target.dtype, level, probabilities=True)
    halved = for_gradient and second == "half"
    if halved:
        form = torch.empty(B, M, F, device=device, dtype=torch.float16)
    start, grid = plans.preparation(B, M, N, F, valid is not None, halved)
    mask = bias if valid is None else valid.view(torch.uint8)
    start(grid, (logits, target, mask, bias, form), (B * N, B * M))
    return bias, None, form if halved else None


def gradients(
    owners: Tensor,
    others: Tensor,
    owner_term: Tensor,
    other_term: Tensor,
    incoming: Incoming,
    *,
    owns_keys: bool,
    sigmoid: bool = False,
    weight: Tensor | None = None,
    peaks: Tensor | None = None,
    other_form: Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradient of the owners, and of the bias if they are keys; see `products.gradients`.

    With the ``peaks`` of the forward pass, tiles that cannot matter are skipped. ``other_form`` is
    that of the others, if it has been prepared; ``dtype`` is that of the result, by default that of
    the owners. With ``sigmoid`` there is no gradient of the bias.
    """
    (B, n_a, F), n_c, device = owners.shape, others.shape[1], owners.device
    scale, scale_set, scale_row, factor = incoming
    dtype = owners.dtype if dtype is None else dtype
    start, grid, tiles, splits, per_split, second = plans.gradients(
        device, B, n_a, n_c, F, owners.dtype, precision(),
        owns_keys, sigmoid, scale is None, weight is not None, peaks is not None,
    )  # fmt: skip
    pieces = () if splits == 1 else (splits,)
    d_owners = torch.empty(
        *pieces, B, n_a, F, device=device, dtype=torch.float32 if pieces else dtype
    )
    unwanted = sigmoid and splits == 1
    d_bias = d_owners if unwanted else torch.empty(*pieces, B, n_a, device=device)
    unread = owner_term
    per_set = unread if scale is None else scale
    terms = (owner_term, other_term, per_set, unread if weight is None else weight)
    tail = (per_split, B, scale_set, scale_row, factor)
    if F <= points.MAX_FEATURES:
        columns = _columns(others) if other_form is None else other_form
        start(
            grid,
            (owners, columns, *terms, d_owners, d_bias),
            (n_a, n_c, columns.shape[2], *tail),
        )
    else:
        if other_form is None:
            other_form = _other_form(others, second)
        largest = unread
        if owns_keys and other_form.dtype == torch.float16:
            largest = _largest(scale, weight, unread)
        visits: tuple[Tensor, Tensor] = (unread, unread)
        if peaks is not None:
            lse, M, N = (other_term, n_c, n_a) if owns_keys else (owner_term, n_a, n_c)
            per_query = weight if weight is not None else scale if scale_row else None
            kept = matters(peaks, lse, per_query, N)
            visits = tiles_to_visit(kept, M, N, F, tiles, owns_keys, per_split)
        tensors = (owners, others, other_form, *terms, largest, *visits, d_owners, d_bias)
        start(grid, tensors, (n_a, n_c, *tail))
    if splits == 1:
        return d_owners, d_bias
    start, grid = plans.gradients_of_pieces(B * n_a, F, owns_keys, sigmoid)
    whole = torch.empty(B, n_a, F, device=device, dtype=dtype)
    whole_bias = torch.empty(B, n_a, device=device) if owns_keys and not sigmoid else whole
    start(grid, (d_owners, d_bias, owners, whole, whole_bias), (B * n_a, splits))
    return whole, whole_bias


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


def _weighted(lse: Tensor, weight: Tensor | None, factor: float) -> Tensor:
    return lse * factor if weight is None else lse * weight * factor


def _largest(scale: Tensor | None, weight: Tensor | None, unread: Tensor) -> Tensor:
    """The largest |gradient| of a query but for the factor; not read if there is neither."""
    if scale is None:
        return unread if weight is None else weight.abs().amax()
    largest = scale if scale.numel() == 1 else scale.abs().amax()
    return largest if weight is None else largest * weight.abs().amax()


def _columns(elements: Tensor) -> Tensor:
    """Elements [B, n, F] as [B, F, n] of float32, rows padded so that wide loads stay aligned."""
    B, n, F = elements.shape
    if n % 16 == 0 and elements.dtype == torch.float32:
        return elements.mT.contiguous()
    columns = torch.empty(B, F, 16 * blocks_in(n, 16), device=elements.device)
    columns[:, :, :n] = elements.mT
    return columns


def _other_form(others: Tensor, second: str) -> Tensor:
    """The operand of the second product in `products.gradients`; see there."""
    if second == "half":
        return others.half()
    return others.mT.contiguous() if second == "transposed" else others
