"""The loops of the Triton engine over score matrices, and those of plain Bernoulli elements.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``. A program
keeps some rows of the score matrix and loops over its columns. Rows are queries; for a gradient to
the keys the matrix is transposed, and they are keys.

Sums are always formed in the same order, so the same call gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels import matmul_precision
from setwise.kernels.triton import plans, points
from setwise.kernels.triton.memory import floats
from setwise.kernels.triton.operands import (
    Apart,
    Operands,
    operand_dtype,
    padded_buffers,
    prepare_operands,
)
from setwise.kernels.triton.skipping import peaks_shape, significant_tiles, tiles_to_visit
from setwise.kernels.triton.tiles import MAX_FEATURES_AT_ONCE, blocks_in
from setwise.kernels.triton.weights import MAX_PARTS

# What the gradients of all queries of set b have in common, ``factor SCALE[b scale_set]``, in this
# order; without a SCALE it is the factor alone. That of a query is so much times its weight.
IncomingGrad = tuple[Tensor | None, int, float]
# Parts of a sum, [B, any], and where the sum goes, [].
Total = tuple[Tensor, Tensor]


def logsumexp_loop(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    record: bool,
    precision: str,
    operands: Operands,
    weight: Tensor | None = None,
    factor: float | None = None,
    centre: Tensor | None = None,
    base_2: bool = False,
    terms: Tensor | None = None,
    sharpness: Tensor | None = None,
    apart: Apart | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Logsumexp [B, M] and peaks, see `operations`; queries are the rows of the ``operands``.

    With a ``factor`` also ``factor sum_i weight_i (lse_i + centre)`` of some queries each, [B,
    blocks]; the ``centre`` [B] is 0 if there is none. The logsumexp is then for gradients, see
    `weights.lse_for_backward`. With ``base_2`` logsumexp and peaks are in bits. ``terms`` are where
    those of `operations.logsumexp` go, or with a factor the weights of `weights.store_weight`: then
    the logsumexp of points is in bits. Features that are ``apart`` add to the scores, but not of
    points, whose first features are compared if there is a ``sharpness``.
    """
    (B, M, F), N = queries.shape, keys.shape[1]
    peaks = None
    shape = peaks_shape(B, M, N, F) if record else None
    if shape is not None:
        peaks = floats(queries.device, *shape)
    launch, grid, _, splits, per_split, *_ = plans.logsumexp(
        queries.device, B, M, N, F, *width_and_type(operands, queries, precision), precision,
        peaks is not None, factor is not None, weight is not None, centre is not None, base_2,
        terms is not None, _compared(sharpness, apart),
    )  # fmt: skip
    lse = floats(queries.device, *((B, M) if splits == 1 else (splits, B, M)))
    partial = terms
    if terms is not None and splits > 1:
        partial = floats(queries.device, splits, B, 2, M)
    told = lse if partial is None else partial
    sums = None
    if factor is not None and splits == 1:
        sums = floats(queries.device, B, grid[0] // B)
    multiplier = 0.0 if factor is None else factor
    weights, centres = lse if weight is None else weight, lse if centre is None else centre
    tail = (per_split, B, multiplier)
    elements: tuple[Tensor, ...]
    if F <= points.MAX_FEATURES:
        elements = operands.rows, operands.columns
        options = (weights, lse if sums is None else sums, lse if sharpness is None else sharpness)
        launch(
            grid, (*elements, bias, lse, *options, told), (M, N, operands.columns.shape[2], *tail)
        )
    else:
        recorded = lse if peaks is None else peaks
        options = (weights, centres, lse if sums is None else sums)
        elements = operands.rows, operands.columns, operands.not_bf16
        beside, strides = _beside(apart, lse)
        tensors = (*elements, bias, lse, recorded, *options, told, *beside)
        launch(grid, tensors, (M, N, *tail, *strides))
    if splits == 1:
        return lse, peaks, sums
    in_bits = base_2 or (terms is not None and F <= points.MAX_FEATURES)
    launch, grid = plans.combine_logsumexp(
        B, M, factor is not None, weight is not None, centre is not None, in_bits, terms is not None
    )
    whole = floats(queries.device, B, M)
    if factor is not None:
        sums = floats(queries.device, B, grid[0] // B)
    launch(
        grid,
        (
            lse if partial is None else partial, weights, centres, whole,
            whole if sums is None else sums, whole if terms is None else terms,
        ),
        (M, B, splits, multiplier),
    )  # fmt: skip
    return whole, peaks, sums


def argmax(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    operands: Operands,
    precision: str,
    sharpness: Tensor | None = None,
    apart: Apart | None = None,
) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]; queries are the rows of the ``operands``."""
    (B, M, F), N = queries.shape, keys.shape[1]
    index = torch.empty(B, M, dtype=torch.long, device=queries.device)
    launch, grid = plans.argmax(
        queries.device, B, M, N, F, *width_and_type(operands, queries, precision), precision,
        _compared(sharpness, apart),
    )  # fmt: skip
    tensors: tuple[Tensor, ...] = (operands.rows, operands.columns, bias, index)
    if F <= points.MAX_FEATURES:
        unread = bias
        tensors = (*tensors, unread if sharpness is None else sharpness)
        launch(grid, tensors, (M, N, operands.columns.shape[2]))
    else:
        beside, strides = _beside(apart, bias)
        launch(grid, (*tensors, *beside), (M, N, B, *strides))
    return index


def _compared(sharpness: Tensor | None, apart: Apart | None) -> int:
    """How many features are."""
    sharpness = sharpness if apart is None else apart.sharpness
    return 0 if sharpness is None else sharpness.shape[1]


def _beside(apart: Apart | None, unread: Tensor) -> tuple[tuple[Tensor, ...], tuple[int, int]]:
    """Features that are apart and their sharpness, and the strides of their columns."""
    if apart is None:
        return (unread, unread, unread), (0, 0)
    return apart, (apart.rows.shape[2], apart.columns.shape[2])


class BernoulliForward(NamedTuple):
    """The forward pass of set cross entropy: its loss, and what its backward passes want."""

    sums: Tensor  # [B, any]: what adds up to the loss of each set
    # In full precision relative to a number of each set: weights depend on the difference alone.
    bias: Tensor  # [B, N]: -sum softplus(logits_j), -inf where not valid
    lse: Tensor  # [B, M]: logsumexp_j score_ij, for gradients: see `weights.lse_for_backward`
    peaks: Tensor | None  # of `skipping`, if recorded
    operands: Operands | None  # for the gradient of the logits, if prepared


def bernoulli_forward(
    target: Tensor,
    logits: Tensor,
    valid: Tensor | None,
    weight: Tensor | None,
    factor: float,
    record: bool,
    prepare_gradient: bool,
    precision: str,
) -> BernoulliForward:
    """``factor sum_i weight_i logsumexp_j(target_i . logits_j - sum softplus(logits_j))``.

    Above the precision of tf32, bias and lse are relative to a common number of each set. The bias
    of many features is large, the differences between outputs are not; at the size of the bias,
    forward and backward would round the same score to different neighbours. Weights depend on
    differences alone. The ``precision`` is that of `matmul_precision.dot_precision`.
    """
    bias, operands, for_gradient = _prepared(target, logits, valid, precision, prepare_gradient)
    centre = None
    if bias.dtype == torch.float64:
        bias, centre = _centred(bias)
    base_2 = bernoulli_base_2(precision, target.shape[2])
    lse, peaks, sums = logsumexp_loop(
        target, logits, bias, record, precision, operands, weight, factor, centre, base_2
    )
    assert sums is not None
    return BernoulliForward(sums, bias, lse, peaks, for_gradient)


def bernoulli_base_2(precision: str, F: int) -> bool:
    """Whether `bernoulli_forward` leaves lse and peaks in bits."""
    return precision != "float32" and F > points.MAX_FEATURES


def _centred(bias: Tensor) -> tuple[Tensor, Tensor]:
    """The bias [B, N] relative to its largest in each set, and that [B], both in float32."""
    B, N = bias.shape
    relative, centre = (floats(bias.device, *s) for s in ((B, N), (B,)))
    launch, grid = plans.centre(B, N)
    launch(grid, (bias, bias.amax(dim=1), relative, centre), (N,))
    return relative, centre


def _prepared(
    target: Tensor, logits: Tensor, valid: Tensor | None, precision: str, for_gradient: bool
) -> tuple[Tensor, Operands, Operands | None]:
    """The bias, and operands for the forward pass and for the gradient of the logits.

    The latter only if they are wanted or made in any case. In full precision of more than points,
    the bias is of float64.
    """
    (B, N, F), M, device = logits.shape, target.shape[1], logits.device
    masked = valid is not None
    if F <= points.MAX_FEATURES:
        bias = floats(device, B, N)
        keys = queries = floats(device, B, F, 16 * blocks_in(N, 16))
        if for_gradient:
            queries = floats(device, B, F, 16 * blocks_in(M, 16))
        launch, grid = plans.prepare_points(B, M, N, F, masked, for_gradient)
        mask = bias if valid is None else valid.view(torch.uint8)
        strides = keys.shape[2], queries.shape[2]
        launch(
            grid,
            (logits, target, mask, bias, keys, queries),
            (N, M, *strides, grid[0] // B),
        )
        backward = Operands(logits, queries, queries, queries) if for_gradient else None
        return bias, Operands(target, keys, keys, keys), backward
    exact = precision == "float32"
    bias = torch.empty(B, N, device=device, dtype=torch.float64 if exact else torch.float32)
    mask = bias if valid is None else valid.view(torch.uint8)
    copies = None
    if not exact:
        copies = padded_buffers(logits, target, operand_dtype(target.dtype, bernoulli=True))
    padded = copies or (logits, target)
    launch, grid = plans.prepare(B * N, B * M, F, padded[0].shape[2], masked, copies is not None)
    launch(grid, (logits, target, mask, bias, *padded), (B * N, B * M))
    if exact:
        forward = prepare_operands(target, logits, precision, rows_are_keys=False)
    else:
        keys, queries = padded
        forward = Operands(queries, keys, keys, keys)
    return bias, forward, forward.swapped()


def gradients(
    rows: Tensor,
    columns: Tensor,
    row_term: Tensor,
    column_term: Tensor,
    incoming: IncomingGrad,
    *,
    rows_are_keys: bool,
    sigmoid: bool = False,
    weight: Tensor | None = None,
    peaks: Tensor | None = None,
    precision: str | None = None,
    base_2: bool = False,
    operands: Operands | None = None,
    dtype: torch.dtype | None = None,
    total: Total | None = None,
    termed: bool = False,
    sharpness: Tensor | None = None,
    apart: Apart | None = None,
    d_apart: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Gradient of the rows, and of the bias if they are keys; see `matmul.gradients`.

    The lse, one of both terms, is that of `weights.lse_for_backward`; with ``base_2`` it is in
    bits, and so are peaks.

    With the ``peaks`` of the forward pass, tiles that cannot matter are skipped. ``operands``, if
    they have been prepared, are those of the ``precision``, by default that of
    `matmul_precision.dot_precision` now; ``dtype`` is that of the result, by default that of the
    rows. With ``sigmoid`` there is no gradient of the bias. A ``total`` of something else is formed
    on the way. Of points, the lse is ``termed`` if it is that of `operations.logsumexp`, and if
    there is a ``sharpness`` their first features are compared. Of more features, others may be
    ``apart``; their gradient goes to ``d_apart`` [B, rows, D].
    """
    (B, n_a, F), n_c, device = rows.shape, columns.shape[1], rows.device
    scale, scale_set, factor = incoming
    dtype = rows.dtype if dtype is None else dtype
    precision = matmul_precision.dot_precision(rows.dtype) if precision is None else precision
    if operands is None:
        operands = prepare_operands(rows, columns, precision, rows_are_keys, gradient=True)
    if total is not None and not _is_totalled(total[0], F):
        torch.sum(total[0], dim=(0, 1), out=total[1])
        total = None
    plan = plans.gradients(
        device, B, n_a, n_c, F, *width_and_type(operands, rows, precision), precision,
        rows_are_keys, sigmoid, scale is None, weight is not None, peaks is not None, base_2,
        total is not None, termed, _compared(sharpness, apart),
    )  # fmt: skip
    splits, panels = plan.splits, plan.panels
    result = torch.empty(B, n_a, F, device=device, dtype=dtype)
    unwanted = sigmoid or (splits > 1 and not rows_are_keys)
    results = result, result if unwanted else floats(device, B, n_a)
    # If loops are split, the results of all splits come first.
    per_set, written = n_a if panels is None else panels.rows, results
    if splits > 1:
        written = (
            floats(device, splits, B, per_set, F),
            floats(device, splits, B, per_set),
        )
    unread = row_term
    scales = unread if scale is None else scale
    terms = (row_term, column_term, scales, unread if weight is None else weight)
    tail = (plan.per_split, B, scale_set, factor)
    sums, parts = ((unread, unread), 0) if total is None else (total, total[0].numel())
    firsts: Iterable[int] = (0,)
    if F <= points.MAX_FEATURES:
        plan.launch(
            plan.grid,
            (operands.rows, operands.columns, *terms, *written, *sums,
             unread if sharpness is None else sharpness),
            (n_a, n_c, operands.columns.shape[2], *tail, parts),
        )  # fmt: skip
    else:
        largest = unread
        if rows_are_keys and weight is not None and operands.second.dtype == torch.float16:
            largest = weight.abs().amax()
        visits: tuple[Tensor, Tensor] = (unread, unread)
        if peaks is not None:
            lse, M, N = (column_term, n_c, n_a) if rows_are_keys else (row_term, n_a, n_c)
            kept = significant_tiles(peaks, lse, weight, N, base_2)
            visits = tiles_to_visit(kept, M, N, F, plan.tiles, rows_are_keys, plan.per_split)
        options = (*terms, largest, *visits)
        if panels is None:
            beside, strides = _beside(apart, unread)
            pulls = unread if d_apart is None else d_apart
            if d_apart is not None and splits > 1:
                pulls = floats(device, splits, *d_apart.shape)
            tensors = (*operands, *options, *written, *sums, *beside, pulls)
            plan.launch(plan.grid, tensors, (n_a, n_c, *tail, parts, *strides))
            if d_apart is not None and splits > 1:
                torch.sum(pulls, dim=0, out=d_apart)
        else:
            assert apart is None
            firsts = _panel_by_panel(plan, panels, operands, options, written, (n_a, n_c, *tail))
    for first in firsts:
        if splits > 1:
            join, grid = plans.combine_gradients(B * per_set, F, rows_are_keys, sigmoid, precision)
            join(grid, (*written, rows, *results), (B * per_set, splits, per_set, n_a, first))
    return results


def _is_totalled(parts: Tensor, F: int) -> bool:
    """Whether a gradient of that many features adds them up in its own launch."""
    return parts.numel() <= MAX_PARTS and F <= MAX_FEATURES_AT_ONCE


def width_and_type(operands: Operands, elements: Tensor, precision: str) -> tuple[int, torch.dtype]:
    """The padded number of features, and the type that `elements` are multiplied in."""
    width, dtype = operands.rows.shape[-1], operands.rows.dtype
    return width, elements.dtype if precision == "float32" else dtype


def _panel_by_panel(
    plan: plans.TiledPlan,
    panels: plans.Panels,
    operands: Operands,
    options: tuple[Tensor, ...],
    written: tuple[Tensor, Tensor],
    numbers: tuple[int | float, ...],
) -> Iterator[int]:
    """The first row of each panel, once it is computed; see `panels`."""
    n_a, n_c = operands.rows.shape[-2], operands.columns.shape[-2]
    *parts, B = operands.rows.shape[:-2]
    tiles, device = blocks_in(n_c, plan.tiles.c), operands.rows.device
    weights = torch.empty(
        *parts, B, panels.rows, tiles * plan.tiles.c, device=device, dtype=operands.second.dtype
    )
    totals = floats(device, tiles, B, panels.rows)
    *terms, scale = options[:3]
    rest, sizes, scaling = options[3:], numbers[:-2], numbers[-2:]
    elements = operands.rows, operands.columns, operands.not_bf16
    kept = weights, totals, operands.second, operands.rows, operands.not_bf16
    for first in range(0, n_a, panels.rows):
        place = first, panels.rows
        panels.launch(panels.grid, (*elements, *terms, *rest, weights, totals), (*sizes, *place))
        plan.launch(plan.grid, (*kept, scale, *rest, *written), (*sizes, *scaling, *place))
        yield first
