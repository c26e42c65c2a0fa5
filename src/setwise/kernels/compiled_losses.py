"""Losses by rows as one operator, for programs that ``torch.compile`` compiles.

Legend: B sets, M targets, N outputs, F features.

Compiled programs cannot look into what starts kernels; an operator they keep whole. This one is
the loss with its gradient to the logits, as in eager calls: a compiled step has as few launches.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from setwise.kernels.row_losses import Blocks, Call

# Whatever the number of elements, kernels serve so many features.
MOST_FEATURES = 256


def serves(blocks: Blocks, compared: int, most_compared: int) -> bool:
    """Whether `loss` can have such elements: as of `fused.serves`, for sets of any size.

    Kernels compare so many features beside a product; more are either multiplied or, up to
    ``most_compared``, not for these kernels.
    """
    squares = sum(width for name, width, _ in blocks if name == "square")
    if sum(width for _, width, _ in blocks) > MOST_FEATURES:
        return False
    return squares <= compared or squares > most_compared


def loss(target: Tensor, logits: Tensor, call: Call) -> Tensor:
    """The loss of a `Call`, [B] or reduced, with a gradient to the logits alone."""
    temperature = call.temperature
    is_tensor = isinstance(temperature, Tensor)
    value, _ = row_loss(
        target,
        logits,
        *spelled(call.blocks),
        call.mode,
        call.both,
        call.reduction,
        temperature if is_tensor else None,
        1.0 if is_tensor else temperature,
        call.skip_negligible,
        call.output_valid,
        call.target_valid,
        call.weight,
        call.share,
    )
    found: Tensor = value
    return found


def spelled(blocks: Blocks) -> tuple[str, list[int], list[float]]:
    """Blocks as operators take them: names, widths, numbers."""
    names = ",".join(name for name, _, _ in blocks)
    return names, [width for _, width, _ in blocks], [number for _, _, number in blocks]


def read(names: str, widths: list[int], numbers: list[float]) -> Blocks:
    """What was `spelled`."""
    return tuple(zip(names.split(","), widths, numbers, strict=True))


@torch.library.custom_op("setwise::row_loss", mutates_args=())
def row_loss(
    target: Tensor,
    logits: Tensor,
    names: str,
    widths: list[int],
    numbers: list[float],
    mode: str,
    both: bool,
    reduction: str,
    temperature_tensor: Tensor | None,
    temperature: float,
    skip_negligible: bool,
    output_valid: Tensor | None,
    target_valid: Tensor | None,
    weight: Tensor | None,
    share: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The loss, and its gradient to the logits for an incoming gradient of 1."""
    blocks = read(names, widths, numbers)
    t = temperature if temperature_tensor is None else temperature_tensor
    arrays = (
        None if array is None else array.contiguous()
        for array in (output_valid, target_valid, weight, share)
    )
    call = Call(blocks, mode, both, reduction, t, skip_negligible, *arrays)  # type: ignore[arg-type]
    fused = import_module("setwise.kernels.fused")
    found: tuple[Tensor, Tensor] = fused.computed(
        call, target.contiguous(), logits.contiguous(), gradient=True
    )
    return found


@row_loss.register_fake
def _(
    target: Tensor,
    logits: Tensor,
    names: str,
    widths: list[int],
    numbers: list[float],
    mode: str,
    both: bool,
    reduction: str,
    temperature_tensor: Tensor | None,
    temperature: float,
    skip_negligible: bool,
    output_valid: Tensor | None,
    target_valid: Tensor | None,
    weight: Tensor | None,
    share: Tensor | None,
) -> tuple[Tensor, Tensor]:
    value = logits.new_empty(logits.shape[:1] if reduction == "none" else ())
    return value, logits.new_empty(logits.shape)


def require_first_derivative() -> None:
    """Refuse to be differentiated again: an operator does not know how its gradient changes."""
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        raise RuntimeError(
            "torch.compile: the gradient of a set loss in a compiled program cannot be "
            "differentiated again (create_graph=True); call the loss outside of what is compiled, "
            "or, of losses by rows, with impl='reference'"
        )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    require_first_derivative()
    (ready,) = ctx.saved_tensors
    d_logits = ready * (grad if grad.dim() == 0 else grad[:, None, None])
    return None, d_logits, *(None,) * 13


row_loss.register_autograd(_backward, setup_context=_setup_context)
