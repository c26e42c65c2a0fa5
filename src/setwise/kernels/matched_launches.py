"""The launches for losses of one matching on CUDA: few from outputs to gradient, as in `fused`.

Legend: B sets, M targets, N outputs, F features.

Of small sets the matching is found here, too: their costs by one launch, the rest by the solver's
own kernels. Of others it is given, for there the device takes longer than the host.
"""

from __future__ import annotations

from torch import Tensor

from setwise.kernels.fused import MAX_PARTS
from setwise.kernels.matched_losses import MatchedCall
from setwise.kernels.row_losses import Blocks
from setwise.kernels.triton import fused_plans, tapes
from setwise.kernels.triton.assignment import solve_into
from setwise.kernels.triton.element import Element, describe, numbers_on
from setwise.kernels.triton.memory import either, floats, mask_bytes

Found = tuple[Tensor, Tensor | None, Tensor | None]


def computed(call: MatchedCall, logits: Tensor, presence: Tensor | None, gradient: bool) -> Found:
    """The loss and, if wanted, its gradients to the logits and to the presence."""
    (B, N, F), M = logits.shape, call.target.shape[1]
    element = describe(call.blocks)
    numbers = numbers_on(logits.device, element.numbers)
    arrays = (call.output_valid, call.target_valid, call.weight, presence)
    given = [call.target, logits, numbers, call.matching]
    given += [array for array in arrays if array is not None]
    # What decides which kernels there are, and all of their arguments but the arrays.
    kind = (
        "matched", call.blocks, call.search, call.root, call.reduction, call.presence_weight,
        B, M, N, F, gradient, *[array is None for array in arrays],
    )  # fmt: skip

    def compute() -> Found:
        if call.search != "known":
            _search(call, element, numbers, logits, presence)
        return _loss(call, element, numbers, logits, presence, gradient)

    loss, d_logits, d_presence = tapes.played(kind, given, compute)
    assert loss is not None
    return loss, d_logits, d_presence


def pair_costs(blocks: Blocks, target: Tensor, logits: Tensor) -> Tensor:
    """The costs of all pairs of small sets, [B, M, N]."""
    (B, N, F), M = logits.shape, target.shape[1]
    element = describe(blocks)
    numbers, costs = numbers_on(logits.device, element.numbers), floats(logits.device, B, M, N)
    launch, grid = fused_plans.matching_costs(element, B, M, N, F, False, False, False, False)
    launch(grid, (target, logits, numbers, numbers, numbers, costs), (M, N, 0.0))
    return costs


def pair_costs_backward(blocks: Blocks, target: Tensor, logits: Tensor, grad: Tensor) -> Tensor:
    """The gradient to the logits from that to the `pair_costs`."""
    (B, N, F), M = logits.shape, target.shape[1]
    element = describe(blocks)
    numbers, d_logits = numbers_on(logits.device, element.numbers), floats(logits.device, B, N, F)
    launch, grid = fused_plans.matching_pull(element, B, M, N, F)
    launch(grid, (target, logits, numbers, grad, d_logits), (M, N))
    return d_logits


def _search(
    call: MatchedCall, element: Element, numbers: Tensor, logits: Tensor, presence: Tensor | None
) -> None:
    """Fill the matching of small sets."""
    (B, N, F), M, device = logits.shape, call.target.shape[1], logits.device
    target, weight, present = call.target, call.weight, presence is not None
    weights = either(weight, numbers), either(presence, numbers)
    if call.search == "cheapest":
        costs = floats(device, B, min(M, N), max(M, N))
        launch, grid = fused_plans.matching_costs(
            element, B, M, N, F, call.root, weight is not None, present, M > N
        )
        tensors = (target, logits, *weights, numbers, costs)
        launch(grid, tensors, (M, N, call.presence_weight))
        solve_into(call.matching, costs, call.target_valid, call.output_valid)
        return
    masked, target_masked = call.output_valid is not None, call.target_valid is not None
    launch, grid = fused_plans.stable_matching(
        element, B, M, N, F, masked, target_masked, weight is not None, present
    )
    masks = mask_bytes(call.output_valid, numbers), mask_bytes(call.target_valid, numbers)
    launch(
        grid,
        (target, logits, *masks, *weights, numbers, call.matching),
        (M, N, call.presence_weight),
    )


def _loss(
    call: MatchedCall,
    element: Element,
    numbers: Tensor,
    logits: Tensor,
    presence: Tensor | None,
    gradient: bool,
) -> Found:
    """What the matching costs."""
    (B, N, F), M, device = logits.shape, call.target.shape[1], logits.device
    d_logits = floats(device, B, N, F) if gradient else None
    d_presence = floats(device, B, N) if gradient and presence is not None else None
    launch, grid = fused_plans.matched_loss(
        element, B, N, F, call.root, call.output_valid is not None,
        call.target_valid is not None, call.weight is not None, presence is not None, gradient,
    )  # fmt: skip
    many = grid[0] // B
    parts = floats(device, B, many)
    tensors = (
        call.target, logits, mask_bytes(call.output_valid, numbers),
        mask_bytes(call.target_valid, numbers), either(call.weight, numbers),
        either(presence, numbers), numbers, call.matching, parts, either(d_logits, parts),
        either(d_presence, parts),
    )  # fmt: skip
    factor = 1.0 / B if call.reduction == "mean" else 1.0
    launch(grid, tensors, (M, N, many, factor, call.presence_weight))
    if call.reduction == "none":
        return _summed(parts, B), d_logits, d_presence
    if grid[0] <= MAX_PARTS:
        return _summed(parts, 1).squeeze(0), d_logits, d_presence
    return parts.sum(), d_logits, d_presence


def _summed(parts: Tensor, sums: int) -> Tensor:
    """So many sums over equally many parts each."""
    launch, grid = fused_plans.total(sums, False)
    loss = floats(parts.device, sums)
    launch(grid, (parts, parts, loss, parts), (parts.numel() // sums, 0, 1.0))
    return loss
