"""A loss whose gradient is ready at once.

Kernels (`fused`, `fused_matchings`) or steps on a CPU (`dense_losses`) compute it in the forward
pass. The backward pass is then a multiplication, which autograd starts in a thread of its own on a
GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from setwise.kernels.transforms import is_array


class ReadyLoss(torch.autograd.Function):
    """A loss, [B] or reduced, with gradients to ``leaves`` [B, ...].

    ``compute`` gives the loss and a gradient to each leaf, or None where no gradient is wanted.
    ``again`` computes the loss from the leaves by the general way, for derivatives of other kinds;
    ``tracked`` says whether autograd is on, which cannot be told from inside.
    """

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[[bool], tuple[Tensor | None, ...]],
        again: Callable[..., Tensor],
        tracked: bool,
        *leaves: Tensor,
    ) -> Tensor:
        loss, *ready = compute(tracked and any(ctx.needs_input_grad))
        ctx.again = again
        ctx.save_for_backward(*leaves, *ready)
        assert loss is not None
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, needs = ctx.saved_tensors, ctx.needs_input_grad[3:]
        leaves, ready = saved[: len(needs)], saved[len(needs) :]
        twice = torch.is_grad_enabled()
        if twice or not is_array(grad):
            with torch.enable_grad():
                # One may be computed from another, whose gradient is to be told apart.
                leaves = [leaf.view_as(leaf) for leaf in leaves]
                wanted = [leaf for leaf, need in zip(leaves, needs, strict=True) if need]
                value = ctx.again(*leaves)
                found = list(torch.autograd.grad(value, wanted, grad, create_graph=twice))
            return None, None, None, *[found.pop(0) if need else None for need in needs]
        if not _keeps_graph() and _is_one(grad):
            return None, None, None, *ready  # the graph is not walked again
        each = [
            ready[k] * _beside(grad, ready[k]) if need else None for k, need in enumerate(needs)
        ]
        return None, None, None, *each


def _is_one(grad: Tensor) -> bool:
    """Whether that is known without waiting for a device, or for a compiler of gradients."""
    if torch.compiler.is_compiling():
        return False
    return grad.dim() == 0 and grad.device.type == "cpu" and grad.item() == 1.0


# Not every release tells whether a graph is walked once more.
_keeps_graph: Callable[[], bool] = getattr(
    torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True
)


def _beside(grad: Tensor, ready: Tensor) -> Tensor:
    """The incoming gradient, one number or [B], as a factor of what is [B, ...]."""
    return grad if grad.dim() == 0 else grad.view(len(ready), *[1] * (ready.dim() - 1))
