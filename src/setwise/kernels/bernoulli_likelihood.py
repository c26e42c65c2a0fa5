"""The likelihood of plain Bernoulli elements on CUDA: few launches from logits to gradient.

Legend: B sets, M targets, N outputs, F features. See `bernoulli`, which does so for another loss.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from setwise.kernels.matchings import log_sum_of_matchings
from setwise.kernels.reference import bernoulli_bias
from setwise.kernels.triton.bethe import bethe
from setwise.kernels.triton.subset_sums import log_sum


class BernoulliLikelihood(torch.autograd.Function):
    """``-log sum_matchings prod_i exp(target_i . logits_j - sum softplus(logits_j))``, reduced.

    Of all elements, at least as many outputs as targets. ``tracked`` says whether autograd is on.
    """

    @staticmethod
    def forward(
        ctx: Any, target: Tensor, logits: Tensor, method: str, reduction: str, tracked: bool
    ) -> Tensor:
        ctx.method, ctx.reduction = method, reduction
        scores = torch.baddbmm(bernoulli_bias(logits).unsqueeze(1), target, logits.transpose(1, 2))
        wanted = tracked and ctx.needs_input_grad[1]
        if method == "bethe":
            value, pairs, used, _, _ = bethe(scores, None, None, None)
        else:
            value, pairs, used = log_sum(scores, None, None, wanted)
        factor = _factor(reduction, len(scores))
        gradient = None
        if wanted:
            # sum_i p_ij (x_i - sigmoid(y_j))
            held = used.unsqueeze(2) * logits.sigmoid()
            gradient = torch.baddbmm(
                held, pairs.transpose(1, 2), target, beta=-factor, alpha=factor
            )
        ctx.save_for_backward(target, logits, gradient)
        return value.neg_() if reduction == "none" else value.sum() * factor

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        target, logits, gradient = ctx.saved_tensors
        if gradient is None or ctx.needs_input_grad[0] or torch.is_grad_enabled():
            return *_general_backward(ctx, target, logits, grad), None, None, None
        return None, gradient * (grad if grad.dim() == 0 else grad[:, None, None]), None, None, None


def _factor(reduction: str, sets: int) -> float:
    """What the log likelihood of a set is multiplied by in the reduced loss."""
    return -1.0 / sets if reduction == "mean" else -1.0


def _general_backward(
    ctx: Any, target: Tensor, logits: Tensor, grad: Tensor
) -> list[Tensor | None]:
    """Second derivatives, and gradients to targets, through the general operator."""
    needs, twice = ctx.needs_input_grad[:2], torch.is_grad_enabled()
    wanted = [t for t, need in zip((target, logits), needs, strict=True) if need]
    with torch.enable_grad():
        bias = bernoulli_bias(logits)
        scores = torch.baddbmm(bias.unsqueeze(1), target, logits.transpose(1, 2))
        (B, M, N), device = scores.shape, scores.device
        rows, columns = (torch.ones(B, k, dtype=torch.bool, device=device) for k in (M, N))
        odds = torch.zeros_like(bias)
        value, _ = log_sum_of_matchings(scores, odds, None, rows, columns, ctx.method)
        value = value * _factor(ctx.reduction, B)
        value = value if ctx.reduction == "none" else value.sum()
        grads = list(torch.autograd.grad(value, wanted, grad, create_graph=twice))
    return [grads.pop(0) if need else None for need in needs]
