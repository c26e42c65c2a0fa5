"""Losses of one matching as one operator, for programs that ``torch.compile`` compiles.

Legend: B sets, M targets, N outputs, F features. As `compiled_losses`; of small sets.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from setwise.kernels.compiled_losses import read, require_first_derivative
from setwise.kernels.matched_losses import MatchedCall


@torch.library.custom_op("setwise::matched_loss", mutates_args=())
def matched_loss(
    target: Tensor,
    logits: Tensor,
    presence: Tensor | None,
    names: str,
    widths: list[int],
    numbers: list[float],
    search: str,
    reduction: str,
    output_valid: Tensor | None,
    target_valid: Tensor | None,
    weight: Tensor | None,
    presence_weight: float,
    root: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss, the matching, and gradients to logits and presence for an incoming one of 1.

    Without presence its gradient is empty.
    """
    target, logits = target.contiguous(), logits.contiguous()
    presence, output_valid, target_valid, weight = (
        None if array is None else array.contiguous()
        for array in (presence, output_valid, target_valid, weight)
    )
    matching = _unmatched(target)
    call = MatchedCall(
        read(names, widths, numbers),
        search,  # type: ignore[arg-type]  # operators take no literals
        reduction,
        target,
        output_valid=output_valid,
        target_valid=target_valid,
        weight=weight,
        presence_weight=presence_weight,
        matching=matching,
        root=root,
    )
    kernels = import_module("setwise.kernels.matched_launches")
    value, d_logits, d_presence = kernels.computed(call, logits, presence, True)
    return value, matching, d_logits, logits.new_empty(0) if d_presence is None else d_presence


@matched_loss.register_fake
def _(
    target: Tensor,
    logits: Tensor,
    presence: Tensor | None,
    names: str,
    widths: list[int],
    numbers: list[float],
    search: str,
    reduction: str,
    output_valid: Tensor | None,
    target_valid: Tensor | None,
    weight: Tensor | None,
    presence_weight: float,
    root: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    value = logits.new_empty(logits.shape[:1] if reduction == "none" else ())
    d_presence = logits.new_empty(0 if presence is None else presence.shape)
    return value, _unmatched(target), logits.new_empty(logits.shape), d_presence


def _unmatched(target: Tensor) -> Tensor:
    return target.new_empty(target.shape[:2], dtype=torch.long)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, matching, d_logits, d_presence = output
    ctx.mark_non_differentiable(matching)
    ctx.save_for_backward(d_logits, None if inputs[2] is None else d_presence)


def _backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    require_first_derivative()
    d_logits, d_presence = ctx.saved_tensors
    of_sets = grad.dim() > 0
    d_logits = d_logits * (grad[:, None, None] if of_sets else grad)
    if d_presence is not None:
        d_presence = d_presence * (grad[:, None] if of_sets else grad)
    return None, d_logits, d_presence, *(None,) * 10


matched_loss.register_autograd(_backward, setup_context=_setup_context)
