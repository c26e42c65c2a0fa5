"""Losses of one matching: what it is found by, and what it costs.

Legend: B sets, N outputs, M targets.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from setwise import values
from setwise.arguments import Sets
from setwise.kernels import dense_matchings, few_steps, matched_losses
from setwise.kernels.assignment import UNMATCHED, assign
from setwise.kernels.compiled_losses import spelled
from setwise.kernels.compiled_matching import matched_loss
from setwise.kernels.dense_elements import Elements
from setwise.kernels.matched_losses import MatchedCall, Search
from setwise.kernels.row_losses import Blocks
from setwise.losses.assign import require_comparable
from setwise.losses.costs import finish, matched_costs, pairwise_costs, weighted
from setwise.losses.presence import Presence

# A loss of sets under a matching, reduced; without presence.
UnderMatching = Callable[[Sets, Tensor, str], Tensor]


def on_host(sets: Sets) -> Elements | None:
    """What `matching_costs` and `finish_matched` need in few steps on a CPU, where that serves."""
    blocks = sets.features.kernel
    if blocks is None:
        return None
    return few_steps.pair_elements(blocks, sets.target, sets.logits, sets.weight)


def matching_costs(
    sets: Sets, presence: Presence | None, elements: Elements | None = None
) -> Tensor:
    """The cost of each pair [B, M, N], with its weight and what the output's existence gains."""
    costs = (
        pairwise_costs(sets)
        if elements is None
        else dense_matchings.all_costs(elements, sets.target_valid)
    )
    if sets.weight is not None:
        costs = costs * sets.weight.unsqueeze(-1)
    return costs if presence is None else costs - presence.odds().unsqueeze(1)


def cheapest_matching(name: str, sets: Sets, costs: Tensor) -> Tensor:
    """The output of each target [B, M] by costs [B, M, N], or UNMATCHED; ``name`` is at fault."""
    matching = assign(costs, sets.target_valid, sets.output_valid)
    # Of a problem that has no cheapest, nothing is matched.
    if not (values.are_readable(matching) and dense_matchings.all_matched(matching)):
        require_comparable(name, costs, sets.target_valid, sets.output_valid)
    return matching


def search_and_finish(
    sets: Sets,
    search: Search,
    presence: Presence | None,
    reduction: str,
    roots: UnderMatching | None = None,
) -> tuple[Tensor, Tensor] | None:
    """The loss and its matching [B, M], by kernels that find both; None where there are none.

    If pairs cost the root of what their features do, ``roots`` is the general way to the loss.
    """
    blocks, elements = sets.features.kernel, (sets.target, sets.logits)
    if blocks is None or not matched_losses.searches(*elements):
        return None
    exists, presence_weight = (None, 0.0) if presence is None else presence
    if matched_losses.fuses_compiled(*elements, exists, sets.weight):
        loss, matching, _, _ = matched_loss(
            *elements,
            exists,
            *spelled(blocks),
            search,
            reduction,
            sets.output_valid,
            sets.target_valid,
            sets.weight,
            presence_weight,
            roots is not None,
        )
        return _of_lead(sets, loss, reduction), matching
    if not _is_fused(sets, presence):
        return None
    matching = torch.empty(sets.target.shape[:2], dtype=torch.long, device=sets.logits.device)
    return _fused(sets, blocks, search, matching, presence, reduction, roots), matching


def finish_matched(
    sets: Sets,
    matching: Tensor,
    presence: Presence | None,
    reduction: str,
    elements: Elements | None = None,
) -> Tensor:
    """The loss under a matching [B, M]: the index of each target's output, or UNMATCHED.

    A set of which a target is left without an output costs infinity.
    """
    blocks = sets.features.kernel
    if blocks is not None and _is_fused(sets, presence):
        return _fused(sets, blocks, "known", matching, presence, reduction)
    if elements is None or presence is not None or not dense_matchings.all_matched(matching):
        return _general(sets, matching, presence, reduction, elements)

    def again(logits: Tensor) -> Tensor:
        flat = sets._replace(logits=logits, lead=logits.shape[:1])
        return _general(flat, matching, None, reduction)

    # No set is impossible, so the batch is reduced at once.
    given = sets.logits, elements, matching, sets.weight, reduction
    return _of_lead(sets, few_steps.matched_loss(*given, again), reduction)


def _is_fused(sets: Sets, presence: Presence | None) -> bool:
    """Whether kernels serve a call of the built-in families.

    They read nothing back, and so cannot tell what is wrong.
    """
    if values.are_readable(sets.logits):
        return False
    exists = None if presence is None else presence.logits
    return matched_losses.fuses(sets.target, sets.logits, exists, sets.weight)


def _fused(
    sets: Sets,
    blocks: Blocks,
    search: Search,
    matching: Tensor,
    presence: Presence | None,
    reduction: str,
    roots: UnderMatching | None = None,
) -> Tensor:
    exists, presence_weight = (None, 0.0) if presence is None else presence
    call = MatchedCall(
        blocks,
        search,
        reduction,
        sets.target,
        output_valid=sets.output_valid,
        target_valid=sets.target_valid,
        weight=sets.weight,
        presence_weight=presence_weight,
        matching=matching,
        root=roots is not None,
    )

    def again(logits: Tensor, exists: Tensor | None = None) -> Tensor:
        flat = sets._replace(logits=logits, lead=logits.shape[:1])
        if roots is not None:
            return roots(flat, matching, reduction)
        there = None if exists is None else Presence(exists, presence_weight)
        return _general(flat, matching, there, reduction)

    return _of_lead(sets, matched_losses.loss(sets.logits, exists, call, again), reduction)


def _of_lead(sets: Sets, loss: Tensor, reduction: str) -> Tensor:
    """A loss as the caller wants it: of each set [*], or reduced."""
    return loss if reduction != "none" or len(sets.lead) == 1 else loss.reshape(sets.lead)


def _general(
    sets: Sets,
    matching: Tensor,
    presence: Presence | None,
    reduction: str,
    elements: Elements | None = None,
) -> Tensor:
    found, chosen = matching != UNMATCHED, matching.clamp(min=0)

    def sums(logits: Tensor) -> Tensor:
        costs = matched_costs(sets._replace(logits=logits), chosen)
        return weighted(sets, torch.where(found, costs, 0.0)).sum(dim=-1)

    if elements is None:
        costs = sums(sets.logits)
    else:
        given = sets.logits, elements, matching, sets.weight, "none"
        costs = few_steps.matched_loss(*given, sums)
    if presence is not None:
        gains = torch.where(found, presence.odds().gather(1, chosen), 0.0)
        costs = costs + presence.all_absent(sets) - gains.sum(dim=-1)
    targets, _ = sets.masks()
    return finish(sets, costs, reduction, (targets & ~found).any(dim=-1))


def targets_given(target: Tensor, sets: Sets) -> int:
    """M, as it was given: classes may come without a dimension for features."""
    return target.shape[len(sets.lead)]
