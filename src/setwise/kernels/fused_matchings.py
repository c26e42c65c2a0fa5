"""The likelihood of small sets of the built-in families on CUDA, in few launches.

Legend: B sets, M targets, N outputs, F features. See `fused`, which does so for losses by rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.kernels.fused import MAX_PARTS
from setwise.kernels.likelihoods import Call
from setwise.kernels.triton import fused_plans, small_losses, small_matchings, tapes
from setwise.kernels.triton.bethe import bethe_of_arrays
from setwise.kernels.triton.element import describe, numbers_on
from setwise.kernels.triton.memory import either, floats, mask_bytes
from setwise.kernels.triton.subset_sums import listed, log_sum_of_arrays


def serves(M: int, N: int, F: int) -> bool:
    """Whether there are kernels for such elements."""
    return max(M, N) <= small_losses.MAX_ELEMENTS and F <= small_losses.MAX_FEATURES


def computed(
    call: Call, target: Tensor, logits: Tensor, gradient: bool
) -> tuple[Tensor | None, ...]:
    """The loss and, if wanted, its gradients to the logits and, if there is one, to presence."""
    (B, N, F), M, device = logits.shape, target.shape[1], logits.device
    numbers = numbers_on(device, describe(call.blocks).numbers)
    arrays = (call.output_valid, call.target_valid, call.weight, call.presence)

    def compute() -> tuple[Tensor | None, ...]:
        return _computed(call, numbers, target, logits, gradient)

    given = [target, logits, numbers, *[array for array in arrays if array is not None]]
    if call.method == "exact":
        given += listed(M, device)
    # What decides which kernels there are, and all of their arguments but the arrays.
    kind = (
        call.blocks, call.method, call.reduction, call.presence_weight, B, M, N, F, gradient,
        *[array is None for array in arrays],
    )  # fmt: skip
    loss, *ready = tapes.played(kind, given, compute)
    if call.presence is None:
        ready.pop()
    return loss, *ready


def _computed(
    call: Call, numbers: Tensor, target: Tensor, logits: Tensor, gradient: bool
) -> tuple[Tensor | None, ...]:
    (B, N, F), M, device = logits.shape, target.shape[1], logits.device
    element, presence = describe(call.blocks), call.presence
    factor = 1.0 / B if call.reduction == "mean" else 1.0
    masked, target_masked = call.output_valid is not None, call.target_valid is not None
    weighted = call.weight is not None

    scores = floats(device, B, M, N)
    based = masked or target_masked or presence is not None
    base = floats(device, B) if based else scores
    rows = columns = None
    if masked or target_masked:
        rows, columns = (torch.empty(B, k, dtype=torch.uint8, device=device) for k in (M, N))
    masks = mask_bytes(call.output_valid, scores), mask_bytes(call.target_valid, scores)
    weight, exists = either(call.weight, scores), either(presence, scores)
    kind = (element, B, M, N, F, masked, target_masked, weighted, presence is not None)
    launch, grid = small_matchings.scores_plan(*kind)
    valid = either(rows, scores), either(columns, scores)
    launch(
        grid,
        (target, logits, *masks, weight, exists, numbers, scores, *valid, base),
        (M, N, factor, call.presence_weight),
    )

    if call.method == "bethe":
        known = None if rows is None or columns is None else (rows, columns)
        value, pairs, *_ = bethe_of_arrays(scores, None, None, known)
    else:
        value, found, _ = log_sum_of_arrays(scores, None, rows, columns, gradient)
        pairs = either(found, scores)

    totalled = call.reduction != "none" and B <= MAX_PARTS
    loss = floats(device) if totalled else floats(device, B)
    ready = ready_presence = None
    if gradient:
        ready = floats(device, B, N, F)
        ready_presence = None if presence is None else floats(device, B, N)
        launch, grid = small_matchings.gradients_plan(*kind, totalled)
        tensors = (
            target, logits, pairs, masks[0], weight, exists, numbers, value, base, loss, ready,
            either(ready_presence, ready),
        )  # fmt: skip
        launch(grid, tensors, (M, N, B, factor, call.presence_weight))
    else:
        launch, grid = fused_plans.total(1 if totalled else B, False)
        parts = B if totalled else 1
        launch(grid, (value, base, loss, value), (parts, parts if based else 0, -factor))
    if call.reduction != "none" and not totalled:
        loss = loss.sum()
    return loss, ready, ready_presence
