"""A loss under one matching, with gradients that are ready at once; as of `row_losses`.

Legend: B sets, M targets, N outputs, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from setwise.kernels import dispatch
from setwise.kernels.row_losses import Blocks
from setwise.kernels.transforms import has_tangent, is_array

# Features of an element at most: a block of them is held in registers.
MAX_FEATURES = 1024
# Elements of a set, and features of them, that a program holds all pairs of: as of `small_losses`.
SMALL_ELEMENTS, SMALL_FEATURES = 64, 256

# How a matching is found; "known" is one that is given.
Search = Literal["cheapest", "stable", "known"]
# Of the logits, the presence and the matching.
General = Callable[[Tensor, Tensor | None, Tensor], Tensor]


class MatchedCall(NamedTuple):
    """One loss of all sets, but for what it is differentiated by."""

    blocks: Blocks
    search: Search
    reduction: str
    target: Tensor  # [B, M, F]
    output_valid: Tensor | None  # [B, N]
    target_valid: Tensor | None  # [B, M]
    weight: Tensor | None  # [B, M]
    presence_weight: float
    matching: Tensor  # [B, M]: the output of each target or -1; filled unless it is known
    root: bool = False  # whether pairs cost the root of a square; of points, not if it is stable


def fuses(
    blocks: Blocks | None,
    target: Tensor,
    logits: Tensor,
    presence: Tensor | None,
    weight: Tensor | None,
) -> bool:
    """Whether `loss` serves such a call."""
    if blocks is None or logits.dtype != torch.float32 or logits.shape[2] > MAX_FEATURES:
        return False
    if dispatch.choose("auto", target, logits) != "triton":
        return False
    if presence is not None and has_tangent(presence):
        return False
    return dispatch._is_plain(target, logits, weight)


def fuses_compiled(
    blocks: Blocks | None,
    target: Tensor,
    logits: Tensor,
    presence: Tensor | None,
    weight: Tensor | None,
) -> bool:
    """Whether `compiled_matching.loss` serves a call inside ``torch.compile``."""
    if blocks is None or not searches(target, logits):
        return False
    if presence is not None and torch._C._functorch.is_batchedtensor(presence):
        return False
    if not dispatch.is_plain_compiled(target, logits, weight):
        return False
    return dispatch.choose("auto", target, logits) == "triton"


def searches(target: Tensor, logits: Tensor) -> bool:
    """Whether kernels find the matching, too, of sets that they serve: those that are small."""
    (_, N, F), M = logits.shape, target.shape[1]
    return M <= SMALL_ELEMENTS and N <= SMALL_ELEMENTS and F <= SMALL_FEATURES


def loss(logits: Tensor, presence: Tensor | None, call: MatchedCall, again: General) -> Tensor:
    """The loss, [B] or reduced, with gradients to the logits and to the presence [B, N].

    ``again`` computes it by the general way, with the matching that was found.
    """
    # Kernels read plain arrays. Here, not in the function: its gradients are of what it was given.
    logits = logits.contiguous()
    presence = None if presence is None else presence.contiguous()
    names = ("target", "output_valid", "target_valid", "weight", "matching")
    call = call._replace(
        **{name: array.contiguous() for name in names if (array := getattr(call, name)) is not None}
    )
    compute = partial(import_module("setwise.kernels.fused_matching").computed, call)
    value: Tensor = MatchedLoss.apply(
        logits, presence, call.matching, compute, again, torch.is_grad_enabled()
    )
    return value


class MatchedLoss(torch.autograd.Function):
    """See `row_losses.RowLoss`; the gradients are to the logits and the presence.

    The ``matching`` is what ``compute`` reads or fills.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        presence: Tensor | None,
        matching: Tensor,
        compute: Callable[[Tensor, Tensor | None, bool], tuple[Tensor, Tensor | None, Any]],
        again: General,
        tracked: bool,
    ) -> Tensor:
        wanted = tracked and (ctx.needs_input_grad[0] or ctx.needs_input_grad[1])
        value, d_logits, d_presence = compute(logits, presence, wanted)
        ctx.again = again
        ctx.save_for_backward(logits, presence, matching, d_logits, d_presence)
        return value

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, presence, matching, d_logits, d_presence = ctx.saved_tensors
        by_logits, by_presence = ctx.needs_input_grad[:2]
        twice = torch.is_grad_enabled()
        if twice or not is_array(grad):
            asked = [t for t, by in ((logits, by_logits), (presence, by_presence)) if by]
            with torch.enable_grad():
                value = ctx.again(logits, presence, matching)
                found = list(torch.autograd.grad(value, asked, grad, create_graph=twice))
            d_presence = found.pop() if by_presence else None
            return found.pop() if by_logits else None, d_presence, *(None,) * 4
        of_sets = grad.dim() > 0
        if by_logits:
            d_logits = d_logits * (grad[:, None, None] if of_sets else grad)
        if by_presence:
            d_presence = d_presence * (grad[:, None] if of_sets else grad)
        return d_logits, d_presence, *(None,) * 4
