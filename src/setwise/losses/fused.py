"""Losses by rows from fused kernels, where there are any for the call.

Legend: B sets, N outputs, M targets, F features.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from setwise.arguments import Sets
from setwise.kernels import compiled_losses, dispatch, few_steps
from setwise.kernels.dispatch import Impl
from setwise.kernels.row_losses import Call, Existence, Mode
from setwise.kernels.transforms import has_tangent
from setwise.losses.costs import (
    admissible,
    finish,
    lacks_outputs,
    lacks_targets,
    target_weights,
)
from setwise.losses.presence import Presence, too_few_outputs

# A loss by rows by the general way, of sets, presence and a reduction.
General = Callable[[Sets, Presence | None, str], Tensor]


def row_loss(
    sets: Sets,
    presence: Presence | None,
    mode: Mode,
    general: General,
    impl: Impl,
    reduction: str,
    *,
    directed: bool = True,
    temperature: float | Tensor = 1.0,
    skip_negligible: bool = True,
) -> Tensor:
    """The loss of that ``mode`` (see `small_losses.small_loss`) by the shortest way there is.

    That is fused kernels on a GPU, few steps on a CPU; where there is neither, and for derivatives
    that they have not, ``general`` computes it.
    """
    blocks = sets.features.kernel
    given = sets.target, sets.logits, temperature, sets.weight
    if blocks is None or (
        presence is not None and not (directed and not has_tangent(presence.logits))
    ):
        return general(sets, presence, reduction)
    elements = few_steps.row_elements(impl, blocks, mode, skip_negligible, *given)
    kernels = elements is None and presence is None
    compiled = kernels and dispatch.fuses_compiled(impl, blocks, mode, *given)
    fused = kernels and not compiled and dispatch.fuses(impl, blocks, mode, *given)
    if elements is None and not compiled and not fused:
        return general(sets, presence, reduction)
    # Sets that cannot be produced must be told apart before the batch is reduced.
    if presence is None:
        impossible = lacks_outputs(sets), None if directed else lacks_targets(sets)
    else:
        impossible = too_few_outputs(sets), None
    early = "none" if any(which is not None for which in impossible) else reduction
    call = Call(
        blocks,
        mode,
        both=not directed,
        reduction=early,
        temperature=temperature,
        skip_negligible=skip_negligible,
        output_valid=admissible(sets.output_valid),
        target_valid=admissible(sets.target_valid),
        weight=target_shares(sets, mode),
        share=None if directed else _share(sets, mode),
    )

    def again(logits: Tensor, exists: Tensor | None = None) -> Tensor:
        there = None
        if presence is not None and exists is not None:
            there = presence._replace(logits=exists)
        return general(sets._replace(logits=logits, lead=logits.shape[:1]), there, early)

    if compiled:
        loss = compiled_losses.loss(sets.target, sets.logits, call)
    elif elements is None:
        loss = dispatch.fused_loss(sets.target, sets.logits, call, again)
    else:
        existence = None if presence is None else _existence(sets, presence)
        loss = few_steps.row_loss(sets.logits, elements, call, again, existence)
    return finish(sets, loss, reduction, *impossible) if early == "none" else loss


def _existence(sets: Sets, presence: Presence) -> Existence:
    targets, outputs = sets.masks()
    choice, number = presence.choice(), targets.sum(dim=-1)
    return Existence(presence.logits, presence.weight, choice, outputs, number)


def target_shares(sets: Sets, mode: str) -> Tensor | None:
    """What each target counts [B, M]; None if it is 1, or an equal share of a mean."""
    if sets.target_valid is None and sets.weight is None:
        return None
    weight = target_weights(sets)
    if mode != "mean":
        return weight
    total = weight.sum(dim=-1, keepdim=True)
    return weight / total.masked_fill(total == 0, 1.0)


def _share(sets: Sets, mode: str) -> Tensor | None:
    """What each output counts [B, N] that looks for its nearest target; None as for targets."""
    if sets.target_valid is None and sets.output_valid is None:
        return None
    targets, outputs = sets.masks()
    share = (outputs & targets.any(dim=-1, keepdim=True)).to(sets.compute_dtype())
    return share / outputs.sum(dim=-1, keepdim=True).clamp(min=1) if mode == "mean" else share
