"""The Triton engine for clouds of points: sorted blocks, of which few are visited.

Legend: B sets, M queries, N keys, F features, all of them compared. A score is ``bias_j - sum_f
sharpness_f (queries_if - keys_jf)^2``. As in `operations`, these are functions of tensors without
autograd. Nothing here waits for the device: every reduction is two launches, of which one does
nothing; see `pruned`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from setwise.kernels.triton import boxes, pruned, unpruned
from setwise.kernels.triton.launch import launcher
from setwise.kernels.triton.memory import floats
from setwise.kernels.triton.operands import transposed
from setwise.kernels.triton.skipping import CUTOFF_BITS
from setwise.kernels.triton.tiles import blocks_in

# Points of a block, blocks of a parent, and blocks of rows that tell whether to search.
BLOCK, GROUP, SAMPLES = 64, 32, 64
# Rows of a program: the fewer, the smaller their box. Measured on an H200, as is BLOCK.
ROWS = 8
# Points a program has at once where nothing is decided by them.
AT_ONCE = 512


class Cloud(NamedTuple):
    """Sorted points of B sets, n of each: see `boxes.build`."""

    n: int
    columns: Tensor
    order: Tensor
    boxes: Tensor
    parents: Tensor

    @property
    def stride(self) -> int:
        return self.columns.shape[2]

    @property
    def blocks(self) -> int:
        return self.boxes.shape[2]


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor) -> Tensor:
    """``argmax_j score_ij``, shape [B, M], the first of equals."""
    queries, keys, bias, sharpness = (t.contiguous() for t in (queries, keys, bias, sharpness))
    (B, M, F), N, device = queries.shape, keys.shape[1], queries.device
    x_order, y_order, start = _orders(queries, keys, bias, sharpness)
    x, y = _cloud(queries, x_order), _cloud(keys, y_order, bias)
    kept = _count(x, y, sharpness, 0.0, False, start)
    index = torch.empty(B, M, dtype=torch.long, device=device)
    launch = launcher(pruned.argmax, {"F": F, "BLOCK_A": ROWS, **_sizes()}, 1, 2)
    tensors = (
        x.columns, y.columns, x.order, y.order, y.boxes, y.parents, start, kept, sharpness, index
    )  # fmt: skip
    launch((B * blocks_in(M, ROWS), 1, 1), tensors, (M, N, x.stride, y.stride, y.blocks))
    constants = {"F": F, "BLOCK_A": ROWS, "BLOCK_C": 256, "SAMPLES": SAMPLES}
    launch = launcher(unpruned.argmax, constants, 2, 2)
    x_t, y_t = transposed(queries), transposed(keys)
    numbers = M, N, x_t.shape[2], y_t.shape[2], y.blocks
    launch((B * blocks_in(M, ROWS), 1, 1), (x_t, y_t, bias, kept, sharpness, index), numbers)
    return index


def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """``logsumexp_j score_ij`` in float32, shape [B, M]; its terms; the orders of both sides.

    The last two are for `logsumexp_backward`: the logsumexp in bits and what was lost when it was
    rounded, [B, 2, M], and [B, M + N] integers.
    """
    queries, keys, bias, sharpness = (t.contiguous() for t in (queries, keys, bias, sharpness))
    (B, M, F), N, device = queries.shape, keys.shape[1], queries.device
    x_order, y_order, start = _orders(queries, keys, bias, sharpness)
    x, y = _cloud(queries, x_order), _cloud(keys, y_order, bias)
    kept = _count(x, y, sharpness, _cut(N), False, start)
    lse, terms = floats(device, B, M), floats(device, B, 2, M)
    grid, numbers = (B * blocks_in(M, ROWS), 1, 1), (M, N, x.stride, y.stride, y.blocks)
    launch = launcher(pruned.logsumexp, {"F": F, "BLOCK_A": ROWS, **_sizes()}, 1, 2)
    tensors = (
        x.columns, y.columns, x_order, y.boxes, y.parents, start, kept, sharpness, lse, terms
    )  # fmt: skip
    launch(grid, tensors, (*numbers, _cut(N)))
    rows, columns = (min(size, BLOCK * GROUP) for size in (16, 64))
    constants = {"F": F, "BLOCK_A": rows, "BLOCK_C": columns, "STAGES": 3}
    constants |= {"ROWS": ROWS, "BLOCK": BLOCK, "SAMPLES": SAMPLES}
    grid = B * blocks_in(M, rows), 1, 1
    launch = launcher(unpruned.logsumexp, constants, 1, 3)
    launch(grid, (x.columns, y.columns, x_order, start, kept, sharpness, lse, terms), numbers)
    return lse, terms, torch.cat([x_order, y_order], dim=1)


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
    queries, keys, bias, sharpness = (t.contiguous() for t in (queries, keys, bias, sharpness))
    M, N = queries.shape[1], keys.shape[1]
    lse, rest = terms.unbind(dim=1)
    lse = lse.masked_fill(lse == -math.inf, math.inf)  # see `weights.lse_for_backward`
    x_order, y_order = (order.contiguous() for order in orders.split((M, N), dim=1))
    x = _cloud(queries, x_order, lse, grad * torch.exp2(-rest))
    y = _cloud(keys, y_order, bias)
    # The gradient of the bias comes from the same loop as that of the keys, and is always wanted.
    d_keys, d_bias = _gradients(y, x, sharpness, _cut(N), True)
    d_queries = queries[:, :0].clone()
    if need_queries:
        d_queries, _ = _gradients(x, y, sharpness, _cut(N), False)
    return d_queries, d_keys if need_keys else keys[:, :0].clone(), d_bias


def _cut(N: int) -> float:
    """A weight that is this many bits below 1 is left out; see `skipping`."""
    return CUTOFF_BITS + math.log2(N)


def _sizes() -> dict[str, Any]:
    return {"BLOCK": BLOCK, "GROUP": GROUP, "SAMPLES": SAMPLES}


def _orders(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Both sides along the curve, and where among the keys each block of queries belongs."""
    F = keys.shape[2]
    variance, mean = torch.var_mean(keys.float(), dim=1)

    def along(elements: Tensor, term: Tensor | None) -> tuple[Tensor, Tensor]:
        B, n, _ = elements.shape
        codes = torch.empty(B, n, dtype=torch.long, device=elements.device)
        constants = {"TERMED": term is not None, "BITS": min(20, 62 // F), "F": F}
        launch = launcher(boxes.codes, {**constants, "BLOCK": AT_ONCE}, 4, 1)
        unread = mean
        tensors = elements, unread if term is None else term, mean, variance, sharpness, codes
        blocks = blocks_in(n, AT_ONCE)
        launch((B * blocks, 1, 1), tensors, (n, blocks))
        return codes.sort(dim=1, stable=True)

    x, x_order = along(queries, None)
    y, y_order = along(keys, bias)
    return x_order, y_order, torch.searchsorted(y, x[:, ::ROWS].contiguous(), right=True)


def _cloud(
    elements: Tensor, order: Tensor, term: Tensor | None = None, weight: Tensor | None = None
) -> Cloud:
    """Sorted into blocks: by features alone, or with a bias, or with an lse and a weight."""
    (B, n, F), device = elements.shape, elements.device
    terms = 0 if term is None else 1 if weight is None else 2
    parents = blocks_in(n, BLOCK * GROUP)
    columns, around, around_parents = (
        floats(device, B, *shape)
        for shape in (
            (F + terms, parents * GROUP * BLOCK),
            (2 * F + 1, parents * GROUP),
            (2 * F + 1, parents),
        )
    )
    unread = elements
    tensors = (
        elements, unread if term is None else term, unread if weight is None else weight,
        order, columns, around, around_parents,
    )  # fmt: skip
    launch = launcher(boxes.build, {"TERMS": terms, "F": F, "BLOCK": BLOCK, "GROUP": GROUP}, 8, 1)
    launch((B * parents, 1, 1), tensors, (n, columns.shape[2], parents))
    return Cloud(n, columns, order, around, around_parents)


def _count(
    rows: Cloud,
    columns: Cloud,
    sharpness: Tensor,
    cut: float,
    rows_are_keys: bool,
    start: Tensor | None = None,
) -> Tensor:
    """See `pruned.count`."""
    B, F = sharpness.shape
    kept = torch.empty(B, SAMPLES, dtype=torch.int32, device=sharpness.device)
    constants = {"LOOKS": start is not None, "ROWS_ARE_KEYS": rows_are_keys, "F": F}
    launch = launcher(pruned.count, {**constants, "BLOCK_A": ROWS, **_sizes()}, 1, 1)
    unread = rows.order
    tensors = (
        rows.columns, columns.columns, columns.boxes, unread if start is None else start,
        sharpness, kept,
    )  # fmt: skip
    numbers = rows.n, rows.stride, columns.stride, columns.blocks, cut
    launch((B * SAMPLES, 1, 1), tensors, numbers)
    return kept


def _gradients(
    rows: Cloud, columns: Cloud, sharpness: Tensor, cut: float, rows_are_keys: bool
) -> tuple[Tensor, Tensor]:
    """Of the rows, and of the bias if they are keys."""
    (B, F), device = sharpness.shape, sharpness.device
    kept = _count(rows, columns, sharpness, cut, rows_are_keys)
    result, d_bias = (floats(device, B, rows.n, *width) for width in ((F,), ()))
    constants = {"ROWS_ARE_KEYS": rows_are_keys, "F": F, "BLOCK_A": ROWS}
    grid = B * blocks_in(rows.n, ROWS), 1, 1
    strides = rows.stride, columns.stride, columns.blocks
    launch = launcher(pruned.gradients, {**constants, **_sizes()}, 1, 2)
    points, results = (rows.columns, columns.columns, rows.order), (sharpness, result, d_bias)
    around = columns.boxes, columns.parents
    launch(grid, (*points, *around, kept, *results), (rows.n, *strides, cut))
    constants |= {"BLOCK_C": min(128 if F <= 4 else 64, BLOCK * GROUP), "STAGES": 4}
    launch = launcher(unpruned.gradients, {**constants, "SAMPLES": SAMPLES}, 1, 4)
    launch(grid, (*points, kept, *results), (rows.n, columns.n, *strides))
    return result, d_bias
