"""The dense engine for plain Bernoulli elements, with a backward pass of few, large steps.

Legend: B sets, M targets, N outputs, F features.

At the size of a training batch of small sets on a CPU, half of the time of a loss goes into the
number of steps, not into their arithmetic. Autograd would take about twice as many.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from setwise.kernels import reference
from setwise.kernels.autocast import no_autocast


class DenseBernoulliLogSumExp(torch.autograd.Function):
    """``lse_i = logsumexp_j(target_i . logits_j - sum softplus(logits_j))``, shape [B, M]."""

    @staticmethod
    def forward(ctx: Any, target: Tensor, logits: Tensor) -> Tensor:
        # Transposed, [B, N, M]: the backward product then has a contiguous result.
        bias = reference.bernoulli_bias(logits).unsqueeze(2)
        scores = torch.baddbmm(bias, logits, target.transpose(1, 2))
        # The powers are kept, relative to the largest: they are most of the softmax weights, which
        # then add up to 1 however large scores are.
        top = scores.amax(dim=1).clamp_(min=torch.finfo(scores.dtype).min)
        powers = scores.sub_(top.unsqueeze(1)).exp_()
        total = powers.sum(dim=1)
        ctx.save_for_backward(target, logits, powers, total)
        return top + total.log()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        target, logits, powers, total = ctx.saved_tensors
        if ctx.needs_input_grad[0] or torch.is_grad_enabled():
            return _through_autograd(ctx, grad)
        with no_autocast(grad):
            weights = powers * (grad / total).unsqueeze(1)
            of_output, attracted = weights.sum(dim=2, keepdim=True), torch.bmm(weights, target)
            # sum_i w_ij (x_i - sigmoid(y_j))
            return None, attracted.addcmul_(of_output, torch.sigmoid(logits), value=-1)


def _through_autograd(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Second derivatives and gradients to the targets: by differentiating the plain formula."""
    target, logits, *_ = ctx.saved_tensors
    needs, twice = ctx.needs_input_grad, torch.is_grad_enabled()
    wanted = [t for t, need in zip((target, logits), needs, strict=True) if need]
    with torch.enable_grad():
        lse = reference.logsumexp(target, logits, reference.bernoulli_bias(logits))
        grads = list(torch.autograd.grad(lse, wanted, grad, create_graph=twice))
    return (grads.pop(0) if needs[0] else None, grads.pop(0) if needs[1] else None)
