"""Set cross entropy of plain Bernoulli elements on CUDA: few launches from logits to gradient.

Legend: B sets, M targets, N outputs, F features.

For sets that are not large the time goes into starting kernels, not into running them, so the most
common element has a path of its own: ``-A(y) = -sum softplus(y)``, the sum over the targets and the
reduction over the batch are part of the same function, and so are their gradients.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from setwise.kernels import matmul_precision
from setwise.kernels.operators import differentiable_logsumexp
from setwise.kernels.reference import bernoulli_bias
from setwise.kernels.transforms import is_array
from setwise.kernels.triton import engine, plans, points, small_sets, tapes
from setwise.kernels.triton.memory import floats
from setwise.kernels.triton.operands import prepare_operands

# Up to this many products the gradient is computed in the forward pass, which leaves a
# multiplication to the backward pass. Autograd runs that in a thread of its own, where the host
# takes longer to start kernels; while so few products are formed, that is what a step waits for.
LIGHT_PRODUCTS = 2**33
# A product of few features takes as long as one of this many: the exponential counts.
MIN_FEATURES = 64
# Numbers of such a gradient, which is kept until the backward pass, in float32.
LIGHT_NUMBERS = 2**24


class BernoulliSetCrossEntropy(torch.autograd.Function):
    """``-sum_i w_i logsumexp_j(target_i . logits_j - sum softplus(logits_j))`` [B], reduced.

    ``valid`` [B, N] tells which outputs may be chosen and ``weight`` [B, M] holds the ``w_i``;
    either may be None. ``tracked`` says whether autograd is on, which cannot be told from inside;
    ``skip_negligible`` allows the gradients to leave out tiles (see `triton.skipping`).
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
        needs = ctx.needs_input_grad
        # A gradient to the weight takes the general way for all of them.
        tracked = tracked and not needs[3]
        need_target, need_logits = tracked and needs[0], tracked and needs[1]
        elements = target, logits, valid, weight
        if max(target.shape[1], logits.shape[1]) <= small_sets.MAX_ELEMENTS:
            result = _small_forward(*elements, reduction, need_target, need_logits)
        else:
            result = _forward(*elements, reduction, skip_negligible, need_target, need_logits)
        loss, saved, ctx.precision, ctx.base_2 = result
        ctx.save_for_backward(*elements, *saved)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        need_target, need_logits, _, need_weight, *_ = ctx.needs_input_grad
        if need_weight or torch.is_grad_enabled() or not is_array(grad):
            return _general_backward(ctx, grad)
        target, logits, _, weight, bias, lse, peaks, ready = ctx.saved_tensors
        d_target = d_logits = operands = None
        if need_logits and ready is not None:
            d_logits = ready * (grad if grad.dim() == 0 else grad[:, None, None])
            d_logits = d_logits if d_logits.dtype == logits.dtype else d_logits.to(logits.dtype)
        elif need_logits:
            incoming = _incoming(grad, ctx.reduction, logits.shape[0])
            operands = prepare_operands(
                logits, target, ctx.precision, True, bernoulli=True, gradient=True
            )
            d_logits, _ = engine.gradients(
                logits, target, bias, lse, incoming, rows_are_keys=True, sigmoid=True,
                weight=weight, peaks=peaks, precision=ctx.precision, base_2=ctx.base_2,
                operands=operands,
            )  # fmt: skip
        if need_target:
            incoming = _incoming(grad, ctx.reduction, logits.shape[0])
            if operands is not None and logits.shape[2] > points.MAX_FEATURES:
                operands = operands.swapped()
            else:
                operands = prepare_operands(
                    target, logits, ctx.precision, False, bernoulli=True, gradient=True
                )
            d_target, _ = engine.gradients(
                target, logits, lse, bias, incoming, rows_are_keys=False,
                weight=weight, peaks=peaks, precision=ctx.precision, base_2=ctx.base_2,
                operands=operands,
            )  # fmt: skip
        return d_target, d_logits, None, None, None, None, None


# What a backward pass finds beside the arguments: bias, logsumexp, peaks, and the gradient to the
# logits for an incoming gradient of 1; None for what it will not want, or has to compute.
_Saved = tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def _forward(
    target: Tensor,
    logits: Tensor,
    valid: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    skip_negligible: bool,
    need_target: bool,
    need_logits: bool,
) -> tuple[Tensor, _Saved, str, bool]:
    """The loss, what to save, the precision of scores, and their base.

    The backward pass computes the same scores, or weights would not add up to 1.
    """
    precision = matmul_precision.dot_precision(target.dtype)
    base_2 = engine.bernoulli_base_2(precision, target.shape[2])
    factor = _factor(reduction, logits.shape[0])
    now = need_logits and _is_light(target, logits)

    def compute() -> tuple[Tensor | None, ...]:
        """The loss, and what to save; the gradient to the logits, too, if it is wanted ``now``."""
        record = skip_negligible and (need_target or need_logits)
        sums, bias, lse, peaks, operands = engine.bernoulli_forward(
            target, logits, valid, weight, factor, record, now, precision
        )
        ready = loss = None
        if now:
            if reduction != "none":
                loss = floats(logits.device)
            ready, _ = engine.gradients(
                logits, target, bias, lse, (None, 0, factor), rows_are_keys=True, sigmoid=True,
                weight=weight, peaks=peaks, precision=precision, base_2=base_2, operands=operands,
                dtype=torch.float32, total=None if loss is None else (sums, loss),
            )  # fmt: skip
        if loss is None:
            loss = sums.sum(dim=-1) if reduction == "none" else sums.sum()
        if now and not need_target:
            return loss, None, None, None, ready
        return loss, bias, lse, peaks, ready

    if not now or need_target:
        loss, *saved = compute()
    else:
        kind = (
            logits.shape, target.shape[1], valid is None, weight is None,
            reduction, skip_negligible, precision,
        )  # fmt: skip
        given = [array for array in (target, logits, valid, weight) if array is not None]
        loss, *saved = tapes.played(kind, given, compute)
    assert loss is not None
    bias, lse, peaks, ready = saved
    return loss, (bias, lse, peaks, ready), precision, base_2


def _is_light(target: Tensor, logits: Tensor) -> bool:
    B, N, F = logits.shape
    products = B * target.shape[1] * N * max(F, MIN_FEATURES)
    return products <= LIGHT_PRODUCTS and B * N * F <= LIGHT_NUMBERS


def _small_forward(
    target: Tensor,
    logits: Tensor,
    valid: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    need_target: bool,
    need_logits: bool,
) -> tuple[Tensor, _Saved, str, bool]:
    """The same in one launch, but for the sum over the sets."""
    (B, M, F), N, device = target.shape, logits.shape[1], logits.device
    sums = floats(device, B)
    d_logits = bias = lse = sums  # what is not wanted is not written
    if need_logits:
        d_logits = floats(device, B, N, F)
    if need_target:
        bias, lse = floats(device, B, N), floats(device, B, M)
    precision = matmul_precision.dot_precision(logits.dtype)
    launch, grid = plans.small_set_cross_entropy(
        B, M, N, F, valid is not None, weight is not None, need_target, need_logits, precision
    )
    tensors = (
        target,
        logits,
        sums if valid is None else valid.view(torch.uint8),
        sums if weight is None else weight,
        bias,
        lse,
        sums,
        d_logits,
    )
    launch(grid, tensors, (M, N, _factor(reduction, B)))
    terms = (bias, lse) if need_target else (None, None)
    loss = sums if reduction == "none" else sums.sum()
    return loss, (*terms, None, d_logits if need_logits else None), precision, False


def _factor(reduction: str, sets: int) -> float:
    """What the logsumexp of a target is multiplied by in the reduced loss."""
    return -1.0 / sets if reduction == "mean" else -1.0


def _incoming(grad: Tensor, reduction: str, sets: int) -> engine.IncomingGrad:
    """The gradient of each logsumexp, as `engine.gradients` takes it."""
    return grad.contiguous(), 1 if reduction == "none" else 0, _factor(reduction, sets)


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
        per_set = (lse if weight is None else lse * weight).sum(dim=-1)
        per_set = per_set * _factor(ctx.reduction, logits.shape[0])
        value = per_set if ctx.reduction == "none" else per_set.sum()
        grads = list(torch.autograd.grad(value, wanted, grad, create_graph=twice))
    return tuple(grads.pop(0) if need else None for need in needs)
