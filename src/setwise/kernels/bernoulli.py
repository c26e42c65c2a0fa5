"""Set cross entropy of plain Bernoulli elements, from logits to gradient in three launches.

Legend: B sets, M targets, N outputs, F features.

For many small sets the time goes into starting kernels, not into running them. This is the one
case common enough to have a path of its own: ``-A(y) = -sum softplus(y)`` is one kernel, and its
share of the gradient is added where the other share is formed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from setwise.kernels.operators import LogSumExp
from setwise.kernels.triton import engine


class BernoulliLogSumExp(torch.autograd.Function):
    """``logsumexp_j(target_i . logits_j - sum softplus(logits_j))``, shape [B, M].

    ``valid`` [B, N] tells which outputs may be chosen; None if all may.
    """

    @staticmethod
    def forward(ctx: Any, target: Tensor, logits: Tensor, valid: Tensor | None) -> Tensor:
        target, logits = target.contiguous(), logits.contiguous()
        bias = engine.bernoulli_bias(logits, valid)
        lse = engine.logsumexp(target, logits, bias)
        ctx.save_for_backward(target, logits, valid, bias, lse)
        return lse

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target, logits, valid, bias, lse = ctx.saved_tensors
        need_target, need_logits, _ = ctx.needs_input_grad
        if not need_target and not torch.is_grad_enabled():
            return None, engine.bernoulli_backward(grad, target, logits, bias, lse), None
        # Second derivatives and gradients to the target: through the general operator.
        wanted = [t for t, need in ((target, need_target), (logits, need_logits)) if need]
        twice = torch.is_grad_enabled()
        with torch.enable_grad():
            x, z = target.float(), logits.float()
            again = LogSumExp.apply(x, z, _bias(z, valid), "triton")
            grads = list(torch.autograd.grad(again, wanted, grad, create_graph=twice))
        return (
            grads.pop(0) if need_target else None,
            grads.pop(0) if need_logits else None,
            None,
        )


def _bias(logits: Tensor, valid: Tensor | None) -> Tensor:
    bias = -F.softplus(logits).sum(-1)
    return bias if valid is None else bias.masked_fill(~valid, -math.inf)
