"""From a checked call to the costs of its elements, and from those to a loss.

Legend: B sets, N outputs, M targets, F features.

The engine works on scores, dot products and squares of differences. Where a reduction picks single
pairs (a nearest output, a matching), the engine only finds them; their cost is then evaluated on
the pairs alone, which is exact where a dot product cancels and differentiable to any order.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import Tensor

from setwise import values
from setwise.arguments import Sets, check_choice, check_flag, reduce_sets
from setwise.features import Factors
from setwise.kernels import dispatch, pair_costs
from setwise.kernels.autocast import no_autocast
from setwise.kernels.dispatch import IMPLS, Impl
from setwise.kernels.gather import gather_elements
from setwise.losses.presence import Presence, too_few_outputs


def plain_bernoulli_is_fused(
    sets: Sets, temperature: float | Tensor, presence: Presence | None, impl: Impl
) -> bool:
    """Whether set cross entropy of plain Bernoulli elements has kernels of its own for a call."""
    if presence is None and _is_one(temperature) and sets.features.plain_bernoulli:
        return dispatch.bernoulli_is_fused(impl, sets.target, sets.logits)
    return False


def set_cross_entropies(
    sets: Sets,
    temperature: float | Tensor,
    presence: Presence | None,
    impl: Impl,
    reduction: str,
    skip_negligible: bool,
) -> Tensor:
    """Set cross entropy, reduced over the batch."""
    scores = _soft_scores(sets, temperature, presence, impl, skip_negligible)
    per_set = -weighted(sets, scores).sum(dim=-1)
    return finish_rows(sets, per_set, presence, reduction)


def bernoulli_set_cross_entropies(sets: Sets, reduction: str, skip_negligible: bool) -> Tensor:
    """That of plain Bernoulli elements by Triton; the sets may be of 16 bits."""
    weight = sets.weight if sets.target_valid is None else target_weights(sets)
    valid = admissible(sets.output_valid)
    # Sets that cannot be produced must be told apart before the batch is reduced.
    early = reduction if valid is None else "none"
    loss = dispatch.bernoulli_set_cross_entropy(
        sets.target, sets.logits, valid, weight, early, skip_negligible
    )
    if early != "none":
        return loss
    return finish(sets, loss, reduction, lacks_outputs(sets))


def _soft_scores(
    sets: Sets,
    temperature: float | Tensor,
    presence: Presence | None,
    impl: Impl,
    skip_negligible: bool,
) -> Tensor:
    """``t logsumexp_j(-H_ij / t)`` of each target [B, M]; 0 for targets that are not valid."""
    factors = _factors(sets, impl)
    keys, bias = factors.keys, _output_bias(factors, presence)
    sharpness = factors.sharpness
    if not _is_one(temperature):
        keys, sharpness = cooled(keys, sharpness, temperature)
        bias = bias / temperature
    # Last: the quotient of an infinite bias has no gradient to a temperature that is learned.
    bias = _barred(bias, sets.output_valid)
    scores = dispatch.logsumexp(factors.queries, keys, bias, impl, skip_negligible, sharpness)
    if not _is_one(temperature):
        scores = scores * temperature
    if factors.base is not None:
        scores = scores + factors.base
    return zero_unless(sets.target_valid, scores)


def _is_one(temperature: float | Tensor) -> bool:
    """Never of a tensor: to look would wait for the device."""
    return not isinstance(temperature, Tensor) and temperature == 1.0


def cooled(
    keys: Tensor, sharpness: Tensor | None, temperature: float | Tensor
) -> tuple[Tensor, Tensor | None]:
    """Scores over the temperature; locations are not divided, for they are to be compared."""
    if sharpness is None:
        return keys / temperature, None
    D = len(sharpness)
    if keys.shape[-1] == D:
        return keys, sharpness / temperature
    return torch.cat([keys[..., :D], keys[..., D:] / temperature], -1), sharpness / temperature


def check_nearest(directed: object, impl: object) -> None:
    """Refuse options that no loss of nearest elements has."""
    check_choice("impl", impl, IMPLS)
    check_flag("directed", directed)


def nearest_output_costs(sets: Sets, presence: Presence | None, impl: Impl) -> Tensor:
    """``min_j H_ij`` of each target [B, M]; 0 for targets that are not valid.

    With presence the cost of choosing an output belongs to it.
    """
    with torch.no_grad():
        factors = _factors(sets, impl)
        bias = _barred(_output_bias(factors, presence), sets.output_valid)
        nearest = dispatch.argmax(factors.queries, factors.keys, bias, impl, factors.sharpness)
    costs = matched_costs(sets, nearest)
    if presence is None:
        return costs
    return costs + zero_unless(sets.target_valid, presence.choice().gather(1, nearest))


def nearest_target_costs(sets: Sets, impl: Impl) -> Tensor:
    """``min_i H_ij`` of each output [B, N]; 0 if it is not valid, or if no target is."""
    with torch.no_grad():
        factors = _factors(sets, impl)
        base = factors.queries.new_zeros(()) if factors.base is None else factors.base
        bias = _barred(base.expand(factors.queries.shape[:2]), sets.target_valid)
        nearest = dispatch.argmax(factors.keys, factors.queries, bias, impl, factors.sharpness)
    with no_autocast(sets.logits):
        costs = sets.features.cost(sets.logits, gather_elements(sets.target, nearest))
    costs = zero_unless(sets.output_valid, costs)
    if sets.target_valid is None:
        return costs
    return costs.masked_fill(~sets.target_valid.any(dim=-1, keepdim=True), 0.0)


def matched_costs(sets: Sets, matching: Tensor) -> Tensor:
    """The cost of each target [B, M] with the output that ``matching`` [B, M] names for it."""
    with no_autocast(sets.logits):
        costs = sets.features.cost(gather_elements(sets.logits, matching), sets.target)
    return zero_unless(sets.target_valid, costs)


def pairwise_costs(sets: Sets) -> Tensor:
    """``H_ij`` of all pairs, [B, M, N], in full."""
    blocks = sets.features.kernel
    if blocks is not None and pair_costs.fuses(sets.target, sets.logits):
        return pair_costs.pair_costs(
            blocks,
            sets.target,
            sets.logits,
            lambda logits: _pairwise_costs(sets._replace(logits=logits)),
        )
    return _pairwise_costs(sets)


def _pairwise_costs(sets: Sets) -> Tensor:
    factors = _factors(sets, "reference")
    with no_autocast(sets.logits):
        costs = -dispatch.scores(
            factors.queries, factors.keys, -factors.log_partition, factors.sharpness
        )
    return costs if factors.base is None else costs - factors.base.unsqueeze(-1)


def weighted(sets: Sets, costs: Tensor) -> Tensor:
    """Costs [B, M] times the weight of their target."""
    return costs if sets.weight is None else costs * sets.weight


def mean_over_targets(sets: Sets, costs: Tensor) -> Tensor:
    """The weighted mean [B] of costs [B, M] over the valid targets; 0 if they weigh nothing."""
    total = target_weights(sets).sum(dim=-1)
    return weighted(sets, costs).sum(dim=-1) / total.masked_fill(total == 0, 1.0)


def mean_over_outputs(sets: Sets, costs: Tensor, presence: Presence | None) -> Tensor:
    """The mean [B] of costs [B, N] over the valid outputs; 0 if there are none.

    With presence outputs count by the probability that they exist.
    """
    outputs = sets.masks()[1]
    if presence is None:
        return costs.sum(dim=-1) / outputs.sum(dim=-1).clamp(min=1)
    exists = presence.probabilities() * outputs
    total = exists.sum(dim=-1)
    return (exists * costs).sum(dim=-1) / total.masked_fill(total == 0, 1.0)


def lacks_outputs(sets: Sets) -> Tensor | None:
    """Sets [B] that have targets and no output to produce them; None if all outputs are valid."""
    if sets.output_valid is None:
        return None
    targets, outputs = sets.masks()
    return targets.any(dim=-1) & ~outputs.any(dim=-1)


def lacks_targets(sets: Sets) -> Tensor | None:
    """Sets [B] that have outputs and no target to explain them; None if all targets are valid."""
    if sets.target_valid is None:
        return None
    targets, outputs = sets.masks()
    return outputs.any(dim=-1) & ~targets.any(dim=-1)


def finish_rows(
    sets: Sets,
    per_set: Tensor,
    presence: Presence | None,
    reduction: str,
    *impossible: Tensor | None,
) -> Tensor:
    """`finish` a loss in which targets choose outputs; with presence their number costs, too.

    Then outputs without targets are no longer impossible: the number says what they cost.
    """
    if presence is None:
        return finish(sets, per_set, reduction, lacks_outputs(sets), *impossible)
    return finish(sets, per_set + presence.size(sets), reduction, too_few_outputs(sets))


def finish(sets: Sets, per_set: Tensor, reduction: str, *impossible: Tensor | None) -> Tensor:
    """Reduce losses [B] over the batch; sets [B] that are impossible in any way cost infinity.

    Reduced, one of them hides all others: which it is, is said where looking is free.
    """
    for which in impossible:
        if which is not None:
            per_set = per_set.masked_fill(which, math.inf)
            tell_impossible(sets, which, reduction)
    return reduce_sets(per_set, sets.lead, reduction)


def tell_impossible(sets: Sets, which: Tensor, reduction: str) -> None:
    """Warn of sets [B] that cost infinity where looking is free: the first of them, its sizes."""
    if reduction == "none" or not sets.lead or not values.are_readable(which) or not which.any():
        return
    found = which.nonzero().flatten().tolist()
    first = found[0]
    targets, outputs = (int(mask[first].sum()) for mask in sets.masks())
    place = ", ".join(str(index) for index in np.unravel_index(first, tuple(sets.lead)))
    more = f" (and {len(found) - 1} more of {len(which)})" if len(found) > 1 else ""
    advice = "every target needs an output of its own; " if targets > outputs > 0 else ""
    warnings.warn(
        f"the loss is infinite: set [{place}]{more} has {targets} targets and {outputs} outputs; "
        f"{advice}reduction='none' gives the loss of each set",
        RuntimeWarning,
        stacklevel=2,
    )


def target_weights(sets: Sets) -> Tensor:
    """The weight of each target [B, M], 0 if it is not valid."""
    return weighted(sets, sets.masks()[0].to(sets.compute_dtype()))


def equal_weights(sets: Sets, size: int) -> Tensor:
    """Weights [B, size] that sum to 1, where all of so many elements are valid."""
    shape, logits = (len(sets.logits), size), sets.logits
    return torch.full(shape, 1 / size, dtype=sets.compute_dtype(), device=logits.device)


def _factors(sets: Sets, impl: Impl) -> Factors:
    features, call = sets.features, (sets.logits, sets.target)
    with no_autocast(sets.logits):
        if dispatch.compares(impl, sets.target, sets.logits, features.comparable):
            return features.factors(*call)
        return Factors(*features.dot_product(*call, sets.target_valid), sharpness=None)


def _output_bias(factors: Factors, presence: Presence | None) -> Tensor:
    """What each output adds to its scores [B, N]."""
    bias = -factors.log_partition
    return bias if presence is None else bias - presence.choice()


def zero_unless(valid: Tensor | None, costs: Tensor) -> Tensor:
    """Costs, 0 where an element is not valid; the mask is None if all are."""
    return costs if valid is None else costs.masked_fill(~valid, 0.0)


def admissible(valid: Tensor | None) -> Tensor | None:
    """Which elements may be chosen: the valid ones, or any in a set that has none.

    Such sets get their value in `finish`; until then they must only stay finite.
    """
    return None if valid is None else valid | ~valid.any(dim=-1, keepdim=True)


def _barred(bias: Tensor, valid: Tensor | None) -> Tensor:
    """The bias [B, N], -inf where an output is not to be chosen."""
    allowed = admissible(valid)
    return bias if allowed is None else bias.masked_fill(~allowed, -math.inf)
