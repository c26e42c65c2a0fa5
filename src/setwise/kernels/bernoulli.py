"""Set cross entropy of plain Bernoulli elements on CUDA: few launches from logits to gradient.

Legend: B sets, M targets, N outputs, F features.

For many small sets the time goes into starting kernels, not into running them, so the most common
element has a path of its own: ``-A(y) = -sum softplus(y)``, the sum over the targets and the
reduction over the batch are part of the same function, and so are their gradients.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from setwise.kernels.operators import differentiable_logsumexp
from setwise.kernels.reference import bernoulli_bias
from setwise.kernels.triton import engine, small
from setwise.kernels.triton.launch import launch
from setwise.kernels.triton.tiles import power_of_2


class BernoulliSetCrossEntropy(torch.autograd.Function):
    """``-sum_i w_i logsumexp_j(target_i . logits_j - sum softplus(logits_j))`` [B], reduced.

    ``valid`` [B, N] tells which outputs may be chosen and ``weight`` [B, M] holds the ``w_i``;
    either may be None. ``tracked`` says whether autograd is on, which cannot be told from inside;
    ``skip_negligible`` allows the backward pass to leave out tiles (see `triton.skipping`).
    """

    @staticmethod
    def forward(
        ctx: Any,
        target: Tensor,
        logits: Tensor,
        valid: Tensor | None,
        weight: Tensor | None,
        reduction: str,
        tracked: bool,
        skip_negligible: bool,
    ) -> Tensor:
        ctx.reduction, ctx.skip_negligible = reduction, skip_negligible
        need_target, need_logits, _, need_weight = (
            tracked and need for need in ctx.needs_input_grad[:4]
        )
        if max(target.shape[1], logits.shape[1]) <= small.MAX_ELEMENTS:
            needs = need_target, need_logits
            return _small_forward(ctx, target, logits, valid, weight, *needs)
        # A gradient to the weight takes the general way, with a record of its own.
        record = skip_negligible and (need_target or need_logits) and not need_weight
        bias, lse, peaks, centre = engine.bernoulli_logsumexp(target, logits, valid, record)
        # Weights depend on differences of these alone, which a common centre leaves as they are.
        ctx.save_for_backward(target, logits, valid, weight, bias, lse, peaks, None)
        rows = lse if centre is None else lse + centre
        rows = rows if weight is None else rows * weight
        if reduction == "none":
            return -rows.sum(dim=-1)
        return rows.sum().mul_(_factor(reduction, len(logits)))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        need_target, need_logits, _, need_weight, *_ = ctx.needs_input_grad
        if need_weight or torch.is_grad_enabled() or not _is_array(grad):
            return _general_backward(ctx, grad)
        target, logits, _, weight, bias, lse, peaks, ready = ctx.saved_tensors
        d_target = d_logits = None
        if need_logits and ready is not None:
            d_logits = ready * (grad if grad.dim() == 0 else grad[:, None, None])
            d_logits = d_logits if d_logits.dtype == logits.dtype else d_logits.to(logits.dtype)
        elif need_logits:
            incoming = _incoming(grad, ctx.reduction, len(logits))
            d_logits, _ = engine.gradients(
                logits, target, bias, lse, incoming,
                owns_keys=True, sigmoid=True, weight=weight, peaks=peaks,
            )  # fmt: skip
        if need_target:
            incoming = _incoming(grad, ctx.reduction, len(logits))
            d_target, _ = engine.gradients(
                target, logits, lse, bias, incoming, owns_keys=False, weight=weight, peaks=peaks
            )
        return d_target, d_logits, None, None, None, None, None


def _is_array(grad: Tensor) -> bool:
    """Whether a tensor has memory of its own that a kernel can read; mapped gradients do not."""
    try:
        grad.data_ptr()
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _factor(reduction: str, sets: int) -> float:
    """What the logsumexp of a target is multiplied by in the reduced loss."""
    return -1.0 / sets if reduction == "mean" else -1.0


def _incoming(grad: Tensor, reduction: str, sets: int) -> tuple[Tensor, int, int, float]:
    """The gradient of each logsumexp, as `engine.gradients` takes it."""
    return grad.contiguous(), 1 if reduction == "none" else 0, 0, _factor(reduction, sets)


def _small_forward(
    ctx: Any,
    target: Tensor,
    logits: Tensor,
    valid: Tensor | None,
    weight: Tensor | None,
    need_target: bool,
    need_logits: bool,
) -> Tensor:
    """The loss and, if it will be wanted, its gradient to the logits in one launch."""
    (B, M, width), N = target.shape, logits.shape[1]
    per_set = torch.empty(B, device=logits.device)
    d_logits = bias = lse = per_set  # what is not wanted is not written
    if need_logits:
        d_logits = torch.empty(B, N, width, device=logits.device)
    if need_target:
        bias = torch.empty(B, N, device=logits.device)
        lse = torch.empty(B, M, device=logits.device)
    constants, warps = _small_options(
        M, N, width, valid is not None, weight is not None, need_target, need_logits,
        engine.precision(),
    )  # fmt: skip
    tensors = (
        target,
        logits,
        per_set if valid is None else valid.view(torch.uint8),
        per_set if weight is None else weight,
        bias,
        lse,
        per_set,
        d_logits,
    )
    numbers = (M, N, _factor(ctx.reduction, B))
    launch(small.set_cross_entropy, (B, 1, 1), tensors, numbers, constants, warps, 2)
    terms = (bias, lse) if need_target else (None, None)
    ready = d_logits if need_logits else None
    ctx.save_for_backward(target, logits, valid, weight, *terms, None, ready)
    return _reduced(per_set, ctx.reduction)


@lru_cache(maxsize=1024)
def _small_options(
    M: int,
    N: int,
    width: int,
    masked: bool,
    weighted: bool,
    terms: bool,
    gradient: bool,
    precision: str,
) -> tuple[dict[str, Any], int]:
    """Constants and number of warps for sets of M targets and N outputs."""
    block_m, block_n = max(16, power_of_2(M)), max(16, power_of_2(N))
    constants = {
        "MASKED": masked,
        "WEIGHTED": weighted,
        "TERMS": terms,
        "GRADIENT": gradient,
        "F": width,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "BLOCK_F": min(max(16, power_of_2(width)), 64 if width <= 512 else 128),
        "PRECISION": precision,
    }
    return constants, 2 if block_m * block_n <= 256 and width <= 512 else 4


def _general_backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Second derivatives, and gradients to weights, through the general operator."""
    target, logits, valid, weight, *_ = ctx.saved_tensors
    needs, twice = ctx.needs_input_grad, torch.is_grad_enabled()
    wanted = [t for t, need in zip((target, logits, valid, weight), needs, strict=False) if need]
    with torch.enable_grad():
        x, z = target.float(), logits.float()
        bias = bernoulli_bias(z)
        bias = bias if valid is None else bias.masked_fill(~valid, -math.inf)
        lse = differentiable_logsumexp(x, z, bias, "triton", ctx.skip_negligible)
        per_set = -(lse if weight is None else lse * weight).sum(dim=-1)
        value = _reduced(per_set, ctx.reduction)
        grads = list(torch.autograd.grad(value, wanted, grad, create_graph=twice))
    return tuple(grads.pop(0) if need else None for need in needs)


def _reduced(per_set: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return per_set
    return per_set.mean() if reduction == "mean" else per_set.sum()
