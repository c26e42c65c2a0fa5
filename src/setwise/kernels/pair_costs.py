"""The costs of all pairs of small sets by kernels: one launch there, and one for the gradient.

Legend: B sets, M targets, N outputs, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from setwise.kernels import dispatch, matched_losses
from setwise.kernels.row_losses import Blocks
from setwise.kernels.transforms import is_array


def fuses(target: Tensor, logits: Tensor) -> bool:
    """Whether `pair_costs` serves such a call of the built-in families."""
    if not matched_losses.searches(target, logits):
        return False
    return matched_losses.fuses(target, logits, None, None)


def pair_costs(
    blocks: Blocks, target: Tensor, logits: Tensor, again: Callable[[Tensor], Tensor]
) -> Tensor:
    """``H_ij`` [B, M, N], differentiable by the logits; ``again`` is the general way from them."""
    # Kernels read plain arrays. Here, not in the function: its gradients are of what it was given.
    costs: Tensor = PairCosts.apply(logits.contiguous(), target.contiguous(), blocks, again)
    return costs


class PairCosts(torch.autograd.Function):
    """The costs, with a gradient to the logits alone."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, blocks: Blocks, again: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.blocks, ctx.again = blocks, again
        ctx.save_for_backward(logits, target)
        costs: Tensor = _kernels().pair_costs(blocks, target, logits)
        return costs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, target = ctx.saved_tensors
        twice = torch.is_grad_enabled()
        if twice or not is_array(grad):
            with torch.enable_grad():
                value = ctx.again(logits)
                (d_logits,) = torch.autograd.grad(value, logits, grad, create_graph=twice)
        else:
            d_logits = _kernels().pair_costs_backward(ctx.blocks, target, logits, grad.contiguous())
        return d_logits, None, None, None


def _kernels() -> Any:
    return dispatch.triton_module("matched_launches")
