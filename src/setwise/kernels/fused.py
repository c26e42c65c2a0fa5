"""Any set loss of the built-in families on CUDA: few launches from outputs to gradient.

Legend: B sets, M targets, N outputs, F features.

For sets that are not large the time goes into starting kernels, not into running them. So what an
element costs, the loop over pairs, the reduction and their gradients are one function here, whose
gradient is computed in the forward pass: autograd runs the backward pass in a thread of its own,
where the host takes longer to start kernels, and a multiplication is left to it.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels import matmul_precision
from setwise.kernels.dispatch import MOST_COMPARED, most_compared
from setwise.kernels.row_losses import Blocks, Call
from setwise.kernels.triton import engine, fused_plans, plans, points, small_losses, tapes
from setwise.kernels.triton.element import Element, describe, numbers_on
from setwise.kernels.triton.memory import either, floats, mask_bytes
from setwise.kernels.triton.operands import Apart, Operands, bf16x3_parts
from setwise.kernels.triton.tiles import MAX_FEATURES_AT_ONCE, blocks_in

# Features of an element at most: a block of them is held in registers.
MAX_FEATURES = 1024
# The most that logarithms are multiplied by, so that float16 has room for those of 2^-4000.
MOST_IN_FLOAT16 = 16.0
# Parts of a loss that one program adds up.
MAX_PARTS = 8192


def serves(blocks: Blocks, M: int, N: int, F: int) -> bool:
    """Whether there are kernels for such elements."""
    if F > MAX_FEATURES:
        return False
    if _is_small(M, N, F) or F <= points.MAX_FEATURES:
        return True
    squares = describe(blocks).squares
    if squares > MOST_COMPARED:
        return squares > most_compared()  # else there are kernels that compare them all
    # Features are compared beside one product, not beside many.
    return squares == 0 or F <= MAX_FEATURES_AT_ONCE


def _is_small(M: int, N: int, F: int) -> bool:
    return max(M, N) <= small_losses.MAX_ELEMENTS and F <= small_losses.MAX_FEATURES


def computed(
    call: Call, target: Tensor, logits: Tensor, gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """The loss and, if wanted, its gradient."""
    (B, N, F), M = logits.shape, target.shape[1]
    element = describe(call.blocks)
    numbers = numbers_on(logits.device, element.numbers)
    if _is_small(M, N, F):
        ready = floats(logits.device, B, N, F) if gradient else None
        return _small(call, element, numbers, target, logits, ready), ready

    def compute() -> tuple[Tensor, Tensor | None]:
        ready = floats(logits.device, B, N, F) if gradient else None
        way = _soft if call.mode == "soft" else _hard
        return way(call, element, numbers, target, logits, ready, precision), ready

    precision = matmul_precision.dot_precision(torch.float32)
    t, arrays = call.temperature, (call.output_valid, call.target_valid, call.weight, call.share)
    given = [target, logits, numbers]
    given += [array for array in (*arrays, t) if isinstance(array, Tensor)]
    # What decides which kernels there are, and all of their arguments but the arrays.
    kind = (
        call.blocks, call.mode, call.both, call.reduction, call.skip_negligible,
        t.shape if isinstance(t, Tensor) else t, B, M, N, F, gradient,
        precision, *[array is None for array in arrays],
    )  # fmt: skip
    loss, ready = tapes.played(kind, given, compute)
    assert loss is not None
    return loss, ready


def _small(
    call: Call,
    element: Element,
    numbers: Tensor,
    target: Tensor,
    logits: Tensor,
    ready: Tensor | None,
) -> Tensor:
    """In one launch, but for the sum over the sets."""
    (B, N, F), M = logits.shape, target.shape[1]
    sums = floats(logits.device, B)
    T, t = _temperature(call, sums)
    launch, grid = fused_plans.small_loss(
        element, B, M, N, F, call.mode, call.both, call.output_valid is not None,
        call.target_valid is not None, call.weight is not None, call.share is not None,
        T is not sums, ready is not None,
    )  # fmt: skip
    tensors = (
        target, logits, mask_bytes(call.output_valid, sums), mask_bytes(call.target_valid, sums),
        either(call.weight, sums), either(call.share, sums), numbers, T, sums, either(ready, sums),
    )  # fmt: skip
    launch(grid, tensors, (M, N, call.factor(B), t))
    return sums if call.reduction == "none" else sums.sum()


class _Prepared(NamedTuple):
    """What `elements.prepare` leaves; operands for loops of queries, and of keys, over the others.

    Parts add up to what of the loss depends on the targets alone.
    """

    queries: Tensor  # [B, M, width]
    keys: Tensor  # [B, N, width]
    forward: Operands
    backward: Operands
    precision: str
    bias: Tensor
    base: Tensor
    sharpness: Tensor | None  # of points
    apart: Apart | None  # of others
    compared: int
    origin: Tensor | None
    parts: Tensor | None


def _prepare(
    call: Call,
    element: Element,
    numbers: Tensor,
    target: Tensor,
    logits: Tensor,
    gradient: bool,
    precision: str,
) -> _Prepared:
    (B, N, F), M, device = logits.shape, target.shape[1], logits.device
    few = F <= points.MAX_FEATURES
    squares = element.squares
    centred = squares > MOST_COMPARED
    compared = 0 if centred else squares
    rounded = precision != "float32" and not few
    dtype = torch.float16 if rounded and _fits_float16(call, element) else torch.float32
    width = F if few else _width(F - compared, dtype, rounded)
    across = rounded and gradient and plans.transposed(M, dtype, precision)
    T, t = _temperature(call, numbers)
    launch, grid = fused_plans.prepare(
        element, B, M, N, F, width, compared, few, centred, call.output_valid is not None,
        call.target_valid is not None, call.weight is not None, T is not numbers, rounded, across,
        call.both,
    )  # fmt: skip
    queries = torch.empty(B, M, width, device=device, dtype=dtype)
    keys = torch.empty(B, N, width, device=device, dtype=dtype)
    queries_t, keys_t, q_apart, k_apart = queries, keys, queries, keys
    q_stride, k_stride = 16 * blocks_in(M, 16), 16 * blocks_in(N, 16)
    if few:
        queries_t = floats(device, B, F, q_stride)
        keys_t = floats(device, B, F, k_stride)
    elif across:
        queries_t = floats(device, B, width, M)
    if compared and not few:
        q_apart = floats(device, B, compared, q_stride)
        k_apart = floats(device, B, compared, k_stride)
    bias = floats(device, B, N)
    base = floats(device, B, M) if call.both else bias
    sharpness = floats(device, B, compared) if compared else None
    origin = floats(device, B, F) if centred else None
    parts = floats(device, B, grid[0] // B) if centred and not call.both else None
    tensors = (
        target, logits, mask_bytes(call.output_valid, bias), mask_bytes(call.target_valid, bias),
        either(call.weight, bias), numbers, T, queries, keys, queries_t, keys_t, q_apart, k_apart,
        bias, base, either(sharpness, bias), either(origin, bias), either(parts, bias),
    )  # fmt: skip
    launch(grid, tensors, (M, N, q_stride, k_stride, grid[0] // B, t, -call.factor(B)))
    apart = None
    if few:
        forward = Operands(queries, keys_t, keys_t, keys_t)
        backward = Operands(keys, queries_t, queries_t, queries_t)
    else:
        if rounded:
            forward = Operands(queries, keys, keys, keys)
            backward = Operands(keys, queries, queries_t, keys)
        else:
            q_parts, k_parts, not_bf16 = bf16x3_parts(queries, keys)
            forward = Operands(q_parts, k_parts, k_parts, not_bf16)
            backward = forward.swapped()
        if sharpness is not None:
            apart, sharpness = Apart(q_apart, k_apart, sharpness), None
    return _Prepared(
        queries, keys, forward, backward, precision, bias, base, sharpness, apart, compared,
        origin, parts,
    )  # fmt: skip


def _fits_float16(call: Call, element: Element) -> bool:
    """Whether what is multiplied may be in float16, which is faster than tf32 of as many bits.

    As of `operands.operand_dtype`: probabilities, and logarithms of them. Coordinates may be
    beyond its range, and so may logarithms times a large weight or over a small temperature.
    """
    t = call.temperature
    if element.squares or isinstance(t, Tensor):
        return False
    return max(element.numbers) / t <= MOST_IN_FLOAT16


def _width(features: int, dtype: torch.dtype, rounded: bool) -> int:
    """Of a row of features that are multiplied: aligned, and more than points have."""
    at_once = 16 // dtype.itemsize if rounded else 1
    return max(2 * points.MAX_FEATURES, at_once * blocks_in(features, at_once))


def _soft(
    call: Call,
    element: Element,
    numbers: Tensor,
    target: Tensor,
    logits: Tensor,
    ready: Tensor | None,
    precision: str,
) -> Tensor:
    """A logsumexp over the outputs; the gradient is that of keys and bias, turned."""
    (B, N, F), M, device = logits.shape, target.shape[1], logits.device
    ops = _prepare(call, element, numbers, target, logits, ready is not None, precision)
    few, factor = F <= points.MAX_FEATURES, -call.factor(B)
    record = call.skip_negligible and ready is not None and not few
    # The lse in bits is faster; what is lost when it is rounded counts where scores are large.
    base_2 = ops.queries.dtype == torch.float16
    terms = None if base_2 else floats(device, B, M)
    lse, peaks, sums = engine.logsumexp_loop(
        ops.queries, ops.keys, ops.bias, record, ops.precision, ops.forward, call.weight, factor,
        base_2=base_2, terms=terms, sharpness=ops.sharpness, apart=ops.apart,
    )  # fmt: skip
    assert sums is not None
    if ready is None:
        return _total(call, sums, ops.parts)
    apart = d_apart = None
    if ops.apart is not None:
        apart, d_apart = ops.apart.swapped(), floats(device, B, N, ops.compared)
    d_keys, d_bias = engine.gradients(
        ops.keys, ops.queries, ops.bias, lse, (None, 0, factor), rows_are_keys=True,
        weight=call.weight if terms is None else terms, peaks=peaks, precision=ops.precision,
        base_2=base_2, operands=ops.backward, dtype=torch.float32, termed=few,
        sharpness=ops.sharpness, apart=apart, d_apart=d_apart,
    )  # fmt: skip
    T, t = _temperature(call, numbers)
    totalled = call.reduction != "none" and sums.numel() <= MAX_PARTS
    launch, grid = fused_plans.finish(
        element, B * N, F, d_keys.shape[2], ops.compared, few, ops.origin is not None,
        T is not numbers, totalled,
    )  # fmt: skip
    loss = floats(device)
    parts = ops.parts
    tensors = (
        logits, d_keys, d_bias, either(d_apart, d_bias), numbers, T, either(ops.origin, d_bias),
        ready, sums, either(parts, sums), loss,
    )  # fmt: skip
    base_parts = 0 if parts is None else parts.numel()
    launch(grid, tensors, (B * N, N, sums.numel(), base_parts, t))
    return loss if totalled else _total(call, sums, parts)


def _total(call: Call, sums: Tensor, parts: Tensor | None) -> Tensor:
    """The loss [B], or reduced, from what adds up to it: [B, any] each."""
    T, t = _temperature(call, sums)
    B, many = sums.shape
    none, few = call.reduction == "none", sums.numel() <= MAX_PARTS
    launch, grid = fused_plans.total(B if none or not few else 1, T is not sums)
    loss = floats(sums.device, grid[0])
    sets = B // grid[0]
    base_parts = 0 if parts is None else parts.shape[1] * sets
    launch(grid, (sums, either(parts, sums), loss, T), (many * sets, base_parts, t))
    if none:
        return loss
    return loss.squeeze(0) if few else loss.sum()


def _hard(
    call: Call,
    element: Element,
    numbers: Tensor,
    target: Tensor,
    logits: Tensor,
    ready: Tensor | None,
    precision: str,
) -> Tensor:
    """Nearest elements are found first; then pairs are what is left of the sets."""
    (B, N, F), M, device = logits.shape, target.shape[1], logits.device
    ops = _prepare(call, element, numbers, target, logits, False, precision)
    queries, keys, loop = ops.queries, ops.keys, (ops.precision, ops.sharpness)
    nearest = engine.argmax(queries, keys, ops.bias, ops.forward, *loop, ops.apart)
    closest = nearest
    if call.both:
        apart = None if ops.apart is None else ops.apart.swapped()
        closest = engine.argmax(keys, queries, ops.base, ops.backward, *loop, apart)
    mode, both, factor = call.mode, call.both, call.factor(B)
    options = mode, both, call.weight is not None, call.share is not None
    launch, grid = fused_plans.pairs(element, B, M, N, F, *options, ready is not None)
    cost = floats(device, B, M)
    back = floats(device, B, N) if both else cost
    pull = pull_back = cost
    if ready is not None:
        pull = floats(device, B, M, F)
        pull_back = floats(device, B, N, F) if both else pull
    parts = floats(device, B, grid[0] // B if mode == "mean" else 1)
    weights = either(call.weight, cost), either(call.share, cost)
    tensors = (target, logits, nearest, closest, *weights, numbers)
    launch(
        grid, (*tensors, cost, back, pull, pull_back, parts), (M, N, grid[0] // B, factor)
    )  # fmt: skip
    worst = ties = cost
    if mode == "worst":
        worst, ties = floats(device, B), floats(device, B, 2)
        launch, grid = fused_plans.worst(B, both)
        launch(grid, (cost, back, parts, worst, ties), (M, N, factor))
    totalled = call.reduction != "none" and parts.numel() <= MAX_PARTS
    if ready is None:
        return _total(call, parts, None)
    loss = floats(device)
    launch, grid = fused_plans.gather(B, N, F, *options, totalled)
    costs = cost, back, worst, ties, pull, pull_back
    launch(
        grid,
        (nearest, *weights, *costs, ready, parts, loss),
        (M, N, grid[0] // B, parts.numel(), factor),
    )
    return loss if totalled else _total(call, parts, None)


def _temperature(call: Call, unread: Tensor) -> tuple[Tensor, float]:
    """As a tensor and as a number; only one of them is looked at."""
    if isinstance(call.temperature, Tensor):
        return call.temperature, 1.0
    return unread, call.temperature
