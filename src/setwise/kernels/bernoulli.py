"""Set cross entropy of plain Bernoulli elements on CUDA: few launches from logits to gradient.

Legend: B sets, M targets, N outputs, F features.

For many small sets the time goes into starting kernels, not into running them, so the most common
element has a path of its own: ``-A(y) = -sum softplus(y)``, the sum over the targets and the
reduction over the batch are part of the same function, and so are their gradients.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from setwise.kernels.operators import LogSumExp
from setwise.kernels.triton import engine, small
from setwise.kernels.triton.launch import launch
from setwise.kernels.triton.tiles import power_of_2


class BernoulliSetCrossEntropy(torch.autograd.Function):
    """``-sum_i w_i logsumexp_j(target_i . logits_j - sum softplus(logits_j))`` [B], reduced.

    ``valid`` [B, N] tells which outputs may be chosen and ``weight`` [B, M] holds the ``w_i``;
    either may be None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        target: Tensor,
        logits: Tensor,
        valid: Tensor | None,
        weight: Tensor | None,
        reduction: str,
    ) -> Tensor:
        target, logits = target.contiguous(), logits.contiguous()
        if _is_small(target, logits):
            bias, lse, per_set = _small_forward(target, logits, valid, weight)
        else:
            bias = engine.bernoulli_bias(logits, valid)
            lse = engine.logsumexp(target, logits, bias)
            per_set = -(lse if weight is None else lse * weight).sum(dim=-1)
        ctx.save_for_backward(target, logits, valid, weight, bias, lse)
        ctx.reduction = reduction
        return _reduced(per_set, reduction)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        need_target, need_logits, _, need_weight, _ = ctx.needs_input_grad
        if need_weight or torch.is_grad_enabled():
            return _general_backward(ctx, grad)
        target, logits, _, weight, bias, lse = ctx.saved_tensors
        scale_set = 1 if ctx.reduction == "none" else 0
        factor = -1.0 / len(logits) if ctx.reduction == "mean" else -1.0
        incoming = (grad.contiguous(), scale_set, 0, factor)
        d_target = d_logits = None
        if need_target:
            d_target, _ = engine.gradients(
                target, logits, lse, bias, incoming, owns_keys=False, weight=weight
            )
        if need_logits and _is_small(target, logits):
            d_logits = _small_backward(target, logits, weight, bias, lse, incoming)
        elif need_logits:
            d_logits, _ = engine.gradients(
                logits, target, bias, lse, incoming, owns_keys=True, sigmoid=True, weight=weight
            )
        return d_target, d_logits, None, None, None


def _general_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Second derivatives, and gradients to weights, through the general operator."""
    target, logits, valid, weight, _, _ = ctx.saved_tensors
    needs, twice = ctx.needs_input_grad, torch.is_grad_enabled()
    wanted = [t for t, need in zip((target, logits, valid, weight), needs, strict=False) if need]
    with torch.enable_grad():
        x, z = target.float(), logits.float()
        bias = -F.softplus(z).sum(-1)
        bias = bias if valid is None else bias.masked_fill(~valid, -math.inf)
        lse = LogSumExp.apply(x, z, bias, "triton")
        per_set = -(lse if weight is None else lse * weight).sum(dim=-1)
        value = _reduced(per_set, ctx.reduction)
        grads = list(torch.autograd.grad(value, wanted, grad, create_graph=twice))
    return tuple(grads.pop(0) if need else None for need in needs)


def _reduced(per_set: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return per_set
    return per_set.mean() if reduction == "mean" else per_set.sum()


def _is_small(target: Tensor, logits: Tensor) -> bool:
    return max(target.shape[1], logits.shape[1]) <= small.MAX_ELEMENTS


@cache
def _small_options(M: int, N: int, width: int, precision: str) -> tuple[dict[str, Any], int]:
    """Constants and number of warps for sets of M targets and N outputs."""
    block_m, block_n = max(16, power_of_2(M)), max(16, power_of_2(N))
    constants = {
        "F": width,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_F": min(max(16, power_of_2(width)), 128),
        "PRECISION": precision,
    }
    return constants, 1 if block_m * block_n <= 256 else 4


def _small_forward(
    target: Tensor, logits: Tensor, valid: Tensor | None, weight: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    (B, M, width), N = target.shape, logits.shape[1]
    bias = torch.empty(B, N, device=logits.device)
    lse = torch.empty(B, M, device=logits.device)
    per_set = torch.empty(B, device=logits.device)
    mask = bias if valid is None else valid.view(torch.uint8)
    tensors = (target, logits, mask, lse if weight is None else weight, bias, lse, per_set)
    constants, warps = _small_options(M, N, width, engine.precision())
    constants = {"MASKED": valid is not None, "WEIGHTED": weight is not None, **constants}
    launch(small.forward, (B, 1, 1), tensors, (M, N), constants, warps, 2)
    return bias, lse, per_set


def _small_backward(
    target: Tensor,
    logits: Tensor,
    weight: Tensor | None,
    bias: Tensor,
    lse: Tensor,
    incoming: tuple[Tensor, int, int, float],
) -> Tensor:
    grad, scale_set, _, factor = incoming
    (B, M, width), N = target.shape, logits.shape[1]
    d_logits = torch.empty_like(logits)
    tensors = (target, logits, bias, lse, grad, lse if weight is None else weight, d_logits)
    constants, warps = _small_options(M, N, width, engine.precision())
    constants = {"WEIGHTED": weight is not None, **constants}
    launch(small.backward, (B, 1, 1), tensors, (M, N, scale_set, factor), constants, warps, 2)
    return d_logits
