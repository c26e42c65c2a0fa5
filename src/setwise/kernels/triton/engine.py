"""The Triton engine: kernels as functions of tensors, without autograd, as in `chunked`.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``.

Sums are always formed in the same order, so the same call gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels.triton import plans, points
from setwise.kernels.triton.forms import Forms, formed, multiplied_dtype, room_for_rows
from setwise.kernels.triton.skipping import matters, peaks_shape, tiles_to_visit
from setwise.kernels.triton.tiles import MOST_FEATURES_AT_ONCE, blocks_in
from setwise.kernels.triton.weights import MOST_PARTS

# What the gradients of all queries of set b have in common, ``factor SCALE[b scale_set]``, in this
# order; without a SCALE it is the factor alone. That of a query is so much times its weight.
Incoming = tuple[Tensor | None, int, float]
# Parts of a sum, [B, any], and where the sum goes, [].
Total = tuple[Tensor, Tensor]


def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, record: bool
) -> tuple[Tensor, Tensor | None]:
    """``logsumexp_j score_ij`` in float32, shape [B, M].

    To ``record`` also gives, where it pays to skip tiles in the backward pass, the peaks that
    `skipping` knows them by.
    """
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    level = precision(queries.dtype)
    forms = formed(queries, keys, level, owns_keys=False)
    lse, peaks, _ = _logsumexp(queries, keys, bias, record, level, forms)
    return lse, peaks


def _logsumexp(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    record: bool,
    level: str,
    forms: Forms,
    weight: Tensor | None = None,
    factor: float | None = None,
    centre: Tensor | None = None,
    base_2: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Logsumexp [B, M] and peaks, as in `logsumexp`; queries own the ``forms``.

    With a ``factor`` also ``factor sum_i weight_i (lse_i + centre)`` of some queries each, [B,
    blocks]; the ``centre`` [B] is 0 if there is none. The logsumexp is then for gradients, see
    `weights.without_weight`. With ``base_2`` logsumexp and peaks are in bits.
    """
    (B, M, F), N = queries.shape, keys.shape[1]
    peaks = None
    shape = peaks_shape(B, M, N, F) if record else None
    if shape is not None:
        peaks = torch.empty(shape, device=queries.device)
    start, grid, _, splits, per_split, *_ = plans.logsumexp(
        queries.device, B, M, N, F, *_width_and_type(forms, queries, level), level,
        peaks is not None, factor is not None, weight is not None, centre is not None, base_2,
    )  # fmt: skip
    lse = torch.empty((B, M) if splits == 1 else (splits, B, M), device=queries.device)
    sums = None
    if factor is not None and splits == 1:
        sums = torch.empty(B, grid[0] // B, device=queries.device)
    multiplier = 0.0 if factor is None else factor
    weights, centres = lse if weight is None else weight, lse if centre is None else centre
    tail = (per_split, B, multiplier)
    if F <= points.MAX_FEATURES:
        tensors = (queries, forms.others, bias, lse, weights, lse if sums is None else sums)
        start(grid, tensors, (M, N, forms.others.shape[2], *tail))
    else:
        recorded = lse if peaks is None else peaks
        options = (weights, centres, lse if sums is None else sums)
        elements = forms.owners, forms.others, forms.long
        start(grid, (*elements, bias, lse, recorded, *options), (M, N, *tail))
    if splits == 1:
        return lse, peaks, sums
    start, grid = plans.logsumexp_of_pieces(
        B, M, factor is not None, weight is not None, centre is not None, base_2
    )
    whole = torch.empty(B, M, device=queries.device)
    if factor is not None:
        sums = torch.empty(B, grid[0] // B, device=queries.device)
    start(
        grid, (lse, weights, centres, whole, whole if sums is None else sums),
        (M, B, splits, multiplier),
    )  # fmt: skip
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
    lse = lse.masked_fill(lse == -math.inf, math.inf)  # see `weights.without_weight`
    incoming = (None, 0, 1.0)
    # The gradient of the bias comes from the same walk as that of the keys, and is always wanted.
    d_keys, d_bias = gradients(
        keys, queries, bias, lse, incoming, owns_keys=True, weight=grad, peaks=peaks
    )
    d_queries = queries[:, :0].clone()
    if need_queries:
        d_queries, _ = gradients(
            queries, keys, lse, bias, incoming, owns_keys=False, weight=grad, peaks=peaks
        )
    return d_queries, d_keys if need_keys else keys[:, :0].clone(), d_bias


def argmax(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]."""
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    (B, M, F), N = queries.shape, keys.shape[1]
    index = torch.empty(B, M, dtype=torch.long, device=queries.device)
    level = precision(queries.dtype)
    forms = formed(queries, keys, level, owns_keys=False)
    start, grid = plans.argmax(
        queries.device, B, M, N, F, *_width_and_type(forms, queries, level), level
    )
    last = forms.others.shape[2] if F <= points.MAX_FEATURES else B
    start(grid, (forms.owners, forms.others, bias, index), (M, N, last))
    return index


class BernoulliForward(NamedTuple):
    """The forward pass of set cross entropy: its loss, and what its backward passes want."""

    sums: Tensor  # [B, any]: what adds up to the loss of each set
    # In full precision relative to a number of each set: weights depend on the difference alone.
    bias: Tensor  # [B, N]: -sum softplus(logits_j), -inf where not valid
    lse: Tensor  # [B, M]: logsumexp_j score_ij, for gradients: see `weights.without_weight`
    peaks: Tensor | None  # of `skipping`, if recorded
    level: str  # of `precision`
    base_2: bool  # whether lse and peaks are in bits
    forms: Forms | None  # for the gradient of the logits, if prepared


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
    level = precision(target.dtype)
    bias, forms, for_gradient = _prepared(target, logits, valid, level, prepare_gradient)
    centre = None
    if bias.dtype == torch.float64:
        bias, centre = _centred(bias)
    base_2 = level != "float32" and target.shape[2] > points.MAX_FEATURES
    lse, peaks, sums = _logsumexp(
        target, logits, bias, record, level, forms, weight, factor, centre, base_2
    )
    assert sums is not None
    return BernoulliForward(sums, bias, lse, peaks, level, base_2, for_gradient)


def _centred(bias: Tensor) -> tuple[Tensor, Tensor]:
    """The bias [B, N] relative to its largest in each set, and that [B], both in float32."""
    B, N = bias.shape
    relative, centre = (torch.empty(s, device=bias.device) for s in ((B, N), (B,)))
    start, grid = plans.centre(B, N)
    start(grid, (bias, bias.amax(dim=1), relative, centre), (N,))
    return relative, centre


def _prepared(
    target: Tensor, logits: Tensor, valid: Tensor | None, level: str, for_gradient: bool
) -> tuple[Tensor, Forms, Forms | None]:
    """The bias, and forms for the forward pass and for the gradient of the logits.

    The latter only if they are wanted or made in any case. In full precision of more than points,
    the bias is of float64.
    """
    (B, N, F), M, device = logits.shape, target.shape[1], logits.device
    masked = valid is not None
    if F <= points.MAX_FEATURES:
        bias = torch.empty(B, N, device=device)
        columns = form = torch.empty(B, F, 16 * blocks_in(N, 16), device=device)
        if for_gradient:
            form = torch.empty(B, F, 16 * blocks_in(M, 16), device=device)
        start, grid = plans.prepare_points(B, M, N, F, masked, for_gradient)
        mask = bias if valid is None else valid.view(torch.uint8)
        strides = columns.shape[2], form.shape[2]
        start(
            grid,
            (logits, target, mask, bias, columns, form),
            (N, M, *strides, grid[0] // B),
        )
        backward = Forms(logits, form, form, form) if for_gradient else None
        return bias, Forms(target, columns, columns, columns), backward
    exact = level == "float32"
    bias = torch.empty(B, N, device=device, dtype=torch.float64 if exact else torch.float32)
    mask = bias if valid is None else valid.view(torch.uint8)
    copies = None
    if not exact:
        copies = room_for_rows(logits, target, multiplied_dtype(target.dtype, bernoulli=True))
    rows = copies or (logits, target)
    start, grid = plans.prepare(B * N, B * M, F, rows[0].shape[2], masked, copies is not None)
    start(grid, (logits, target, mask, bias, *rows), (B * N, B * M))
    if exact:
        forward = formed(target, logits, level, owns_keys=False)
    else:
        keys, queries = rows
        forward = Forms(queries, keys, keys, keys)
    return bias, forward, forward.swapped()


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
    level: str | None = None,
    base_2: bool = False,
    forms: Forms | None = None,
    dtype: torch.dtype | None = None,
    total: Total | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradient of the owners, and of the bias if they are keys; see `products.gradients`.

    The lse, one of both terms, is that of `weights.without_weight`; with ``base_2`` it is in bits,
    and so are peaks.

    With the ``peaks`` of the forward pass, tiles that cannot matter are skipped. ``forms``, if they
    have been prepared, are those of the ``level``, which by default is the `precision` now;
    ``dtype`` is that of the result, by default that of the owners. With ``sigmoid`` there is no
    gradient of the bias. A ``total`` of something else is formed on the way.
    """
    (B, n_a, F), n_c, device = owners.shape, others.shape[1], owners.device
    scale, scale_set, factor = incoming
    dtype = owners.dtype if dtype is None else dtype
    level = precision(owners.dtype) if level is None else level
    if forms is None:
        forms = formed(owners, others, level, owns_keys, gradient=True)
    if total is not None and not _is_totalled(total[0], F):
        torch.sum(total[0], dim=(0, 1), out=total[1])
        total = None
    walk = plans.gradients(
        device, B, n_a, n_c, F, *_width_and_type(forms, owners, level), level,
        owns_keys, sigmoid, scale is None, weight is not None, peaks is not None, base_2,
        total is not None,
    )  # fmt: skip
    splits, strips = walk.splits, walk.strips
    result = torch.empty(B, n_a, F, device=device, dtype=dtype)
    unwanted = sigmoid or (splits > 1 and not owns_keys)
    results = result, result if unwanted else torch.empty(B, n_a, device=device)
    # Of a walk that is split, the results of all pieces come first.
    rows, written = n_a if strips is None else strips.owners, results
    if splits > 1:
        written = (
            torch.empty(splits, B, rows, F, device=device),
            torch.empty(splits, B, rows, device=device),
        )
    unread = owner_term
    per_set = unread if scale is None else scale
    terms = (owner_term, other_term, per_set, unread if weight is None else weight)
    tail = (walk.per_split, B, scale_set, factor)
    sums, parts = ((unread, unread), 0) if total is None else (total, total[0].numel())
    walked: Iterable[int] = (0,)
    if F <= points.MAX_FEATURES:
        walk.start(
            walk.grid, (owners, forms.others, *terms, *written, *sums),
            (n_a, n_c, forms.others.shape[2], *tail, parts),
        )  # fmt: skip
    else:
        largest = unread
        if owns_keys and weight is not None and forms.second.dtype == torch.float16:
            largest = weight.abs().amax()
        visits: tuple[Tensor, Tensor] = (unread, unread)
        if peaks is not None:
            lse, M, N = (other_term, n_c, n_a) if owns_keys else (owner_term, n_a, n_c)
            kept = matters(peaks, lse, weight, N, base_2)
            visits = tiles_to_visit(kept, M, N, F, walk.tiles, owns_keys, walk.per_split)
        options = (*terms, largest, *visits)
        if strips is None:
            tensors = (*forms, *options, *written, *sums)
            walk.start(walk.grid, tensors, (n_a, n_c, *tail, parts))
        else:
            walked = _strip_by_strip(walk, strips, forms, options, written, (n_a, n_c, *tail))
    for first in walked:
        if splits > 1:
            join, grid = plans.gradients_of_pieces(B * rows, F, owns_keys, sigmoid, level)
            join(grid, (*written, owners, *results), (B * rows, splits, rows, n_a, first))
    return results


def _is_totalled(parts: Tensor, F: int) -> bool:
    """Whether a gradient of that many features adds them up in its own launch."""
    return parts.numel() <= MOST_PARTS and F <= MOST_FEATURES_AT_ONCE


def _width_and_type(forms: Forms, elements: Tensor, level: str) -> tuple[int, torch.dtype]:
    """The length of rows, and what `elements` are multiplied as: themselves, if in thirds."""
    width, dtype = forms.owners.shape[-1], forms.owners.dtype
    return width, elements.dtype if level == "float32" else dtype


def _strip_by_strip(
    walk: plans.Walk,
    strips: plans.Strips,
    forms: Forms,
    options: tuple[Tensor, ...],
    written: tuple[Tensor, Tensor],
    numbers: tuple[int | float, ...],
) -> Iterator[int]:
    """The first owner of each strip, after its walk; see `strips`."""
    n_a, n_c = forms.owners.shape[-2], forms.others.shape[-2]
    *parts, B = forms.owners.shape[:-2]
    tiles, device = blocks_in(n_c, walk.tiles.c), forms.owners.device
    weights = torch.empty(
        *parts, B, strips.owners, tiles * walk.tiles.c, device=device, dtype=forms.second.dtype
    )
    totals = torch.empty(tiles, B, strips.owners, device=device)
    *terms, scale = options[:3]
    rest, sizes, scaling = options[3:], numbers[:-2], numbers[-2:]
    elements = forms.owners, forms.others, forms.long
    kept = weights, totals, forms.second, forms.owners, forms.long
    for first in range(0, n_a, strips.owners):
        place = first, strips.owners
        strips.start(strips.grid, (*elements, *terms, *rest, weights, totals), (*sizes, *place))
        walk.start(walk.grid, (*kept, scale, *rest, *written), (*sizes, *scaling, *place))
        yield first


def precision(dtype: torch.dtype) -> str:
    """How products are formed: in "float32", or as tensor cores do at their fastest, in "tf32".

    The latter also stands for types of 16 bits, `forms.multiplied_dtype` among them.

    For float32 that follows PyTorch's own setting for matrix products, where "high", which is also
    what ``allow_tf32 = True`` sets, still means full precision: a score is a small difference of
    large terms. There is no such choice for types of 16 bits. PyTorch has an older setting of three
    levels and a newer one per backend, and lets only one of them be read once the newer has been
    used.
    """
    if dtype != torch.float32:
        return "tf32"
    try:
        allowed = torch.get_float32_matmul_precision() == "medium"
    except RuntimeError:
        allowed = torch.backends.cuda.matmul.fp32_precision == "tf32"
    return "tf32" if allowed else "float32"
