"""A loss in which rows of the costs of pairs are reduced, with a gradient that is ready at once.

Legend: B sets, M targets, N outputs, F features.

Kernels (`fused`) or steps on a CPU (`dense_losses`) compute the gradient in the forward pass. The
backward pass is then a multiplication, which autograd starts in a thread of its own on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from setwise.kernels.transforms import is_array

# The name, width and number of each block: see `setwise.features.family.Family.kernel`.
Blocks = tuple[tuple[str, int, float], ...]
# What becomes of the costs of pairs; see `triton.small_losses.small_loss`.
Mode = Literal["soft", "mean", "worst"]


class Call(NamedTuple):
    """One loss of all sets; the formulas are those of `small_losses.small_loss`."""

    blocks: Blocks
    mode: Mode
    both: bool  # directions
    reduction: str
    temperature: float | Tensor
    skip_negligible: bool
    output_valid: Tensor | None  # [B, N]: which may be chosen; some in every set
    target_valid: Tensor | None  # [B, M]
    weight: Tensor | None  # [B, M]: what targets count
    share: Tensor | None  # [B, N]: what outputs count, in the other direction

    def factor(self, sets: int) -> float:
        """What the loss of a set is multiplied by."""
        return 1.0 / sets if self.reduction == "mean" else 1.0


class RowLoss(torch.autograd.Function):
    """A loss, [B] or reduced, with a gradient to the logits.

    ``compute`` gives both, and None instead of a gradient that is not wanted. ``again`` computes
    the loss from the logits by the general way, for derivatives of other kinds; ``tracked`` says
    whether autograd is on, which cannot be told from inside.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        compute: Callable[[bool], tuple[Tensor, Tensor | None]],
        again: Callable[[Tensor], Tensor],
        tracked: bool,
    ) -> Tensor:
        loss, ready = compute(tracked and ctx.needs_input_grad[0])
        ctx.again = again
        ctx.save_for_backward(logits, ready)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        logits, ready = ctx.saved_tensors
        twice = torch.is_grad_enabled()
        if twice or not is_array(grad):
            with torch.enable_grad():
                value = ctx.again(logits)
                (d_logits,) = torch.autograd.grad(value, logits, grad, create_graph=twice)
            return d_logits, None, None, None
        return ready * (grad if grad.dim() == 0 else grad[:, None, None]), None, None, None
