"""Average precision: how well outputs are found, and how well they know whether they exist.

Legend: B pictures (sets), N outputs, M targets, F features, R limits of the distance; ``*`` any
leading dimensions, flattened to B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from setwise.arguments import check_call, check_choice, check_presence
from setwise.features import Features
from setwise.metrics.elements import distance, elements_of

Definition = Literal["dataset", "picture"]
DEFINITIONS: tuple[str, ...] = get_args(Definition)
Limits = float | Sequence[float]


class Ranked(NamedTuple):
    """The outputs of each set from the most to the least confident, and which of them are right."""

    confidence: Tensor  # [B, N], logits
    hit: Tensor  # [B, N, R]
    valid: Tensor  # [B, N]
    targets: Tensor  # [B], how many there are


def average_precision(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    presence: Tensor,
    within: Limits = math.inf,
    definition: Definition = "dataset",
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
) -> Tensor:
    r"""The area under the curve of precision over recall, as outputs are taken by confidence.

    ``presence`` [*, N], logits, ranks the outputs. Each is right if its discretised features equal
    those of a target that no output before it has found, with numbers and angles at a Euclidean
    distance less than ``within``. After the first k outputs, precision is the share of right ones
    among them, and recall the share of targets found; the result is

    .. math:: \sum_k (\mathrm{recall}_k - \mathrm{recall}_{k-1}) \max_{l \ge k} \mathrm{precision}_l

    Two definitions are in use for sets of objects:

    - ``"dataset"``: all outputs are ranked together, and an output whose nearest target of the same
      features has been found is wrong (Locatello et al., 2020, Slot Attention);
    - ``"picture"``: each set for itself, and the mean over sets that have targets. An output takes
      the nearest target that is left, for good, even if it is too far away (Zhang et al., 2022,
      iDSPN).

    ``input`` holds logits [*, N, F]; masks are those of other metrics. The result is a number, or
    with several limits ``within`` one for each; NaN if there are no targets.

    >>> import setwise as sw
    >>> places = sw.Features(sw.Gaussian(1))
    >>> target = torch.tensor([[0.0], [1.0]])
    >>> output, presence = torch.tensor([[0.1], [5.0], [1.0]]), torch.tensor([3.0, 2.0, 1.0])
    >>> options = dict(features=places, presence=presence, within=(0.5, 0.05))
    >>> average_precision(output, target, **options)  # 1/2 + 1/2 * 2/3, and 1/2 * 1/3
    tensor([0.8333, 0.1667])
    """
    limits = check_limits(within)
    check_choice("definition", definition, DEFINITIONS)
    ranked = rank(input, target, features, presence, limits, definition, input_valid, target_valid)
    if definition == "picture":
        per_set, counts = precision_of_sets(ranked)
        found = per_set.sum(dim=0) / counts.sum()
    else:
        valid = ranked.valid
        found = area(ranked.confidence[valid], ranked.hit[valid], ranked.targets.sum())
    return shaped(found, within)


def shaped(found: Tensor, within: Limits) -> Tensor:
    """[R] as it is returned: without a dimension for a single limit."""
    return found.float() if isinstance(within, Sequence) else found.float().squeeze(0)


def check_limits(within: Limits) -> list[float]:
    """Limits of the distance as a list; each must be a positive number."""
    limits = list(within) if isinstance(within, Sequence) else [within]
    if not limits:
        raise ValueError("within: expected a limit of the distance or several, got none")
    for limit in limits:
        if isinstance(limit, bool) or not isinstance(limit, int | float):
            raise TypeError(f"within: expected a number or several, got {within!r}")
        if not limit > 0:
            raise ValueError(f"within: limits must be positive, got {limit!r}")
    return [float(limit) for limit in limits]


def rank(
    input: Tensor,
    target: Tensor,
    features: Features | None,
    presence: Tensor,
    limits: list[float],
    definition: Definition,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
) -> Ranked:
    """Check a call, and find which outputs are right, the most confident of each set first."""
    sets = check_call(input, target, features, input_valid, target_valid, None, "none")
    logits = check_presence(presence, input, sets)
    if logits is None:
        raise TypeError("presence: expected the logits [*, N] that rank the outputs, got None")
    elements = elements_of(sets)
    apart = distance(elements).masked_fill(~elements.target_valid.unsqueeze(-1), math.inf)
    # Last those that are not valid; they are right in nothing and stand in nobody's way.
    logits = logits.detach().masked_fill(~elements.output_valid, -math.inf)
    confidence, order = logits.sort(dim=-1, descending=True, stable=True)
    valid = elements.output_valid.gather(1, order)
    apart = apart.gather(2, order.unsqueeze(1).expand_as(apart)).masked_fill(
        ~valid.unsqueeze(1), math.inf
    )
    choose = _nearest if definition == "dataset" else _nearest_left
    hit = choose(apart, torch.tensor(limits, dtype=apart.dtype, device=apart.device))
    return Ranked(confidence, hit, valid, elements.target_valid.sum(dim=-1))


def area(confidence: Tensor, hit: Tensor, targets: Tensor) -> Tensor:
    """The average precision [R] of outputs of one ranking: [n], [n, R] and how many targets."""
    ranked = hit[confidence.argsort(descending=True, stable=True)].double()
    return _area(ranked, targets)


def precision_of_sets(ranked: Ranked) -> tuple[Tensor, Tensor]:
    """The average precision [B, R] of each set, 0 where it has no targets, and which [B] do."""
    counts = ranked.targets > 0
    return _area(ranked.hit.double(), ranked.targets.clamp(min=1)), counts


def _area(hit: Tensor, targets: Tensor) -> Tensor:
    """[*, n, R] in the order of their ranks, and how many targets [*] -> [*, R]."""
    rank = torch.arange(1, hit.shape[-2] + 1, device=hit.device, dtype=hit.dtype).unsqueeze(-1)
    precision = hit.cumsum(dim=-2) / rank
    best_from_here = precision.flip(-2).cummax(dim=-2).values.flip(-2)
    return (hit * best_from_here).sum(dim=-2) / targets.unsqueeze(-1)


def _nearest(apart: Tensor, limits: Tensor) -> Tensor:
    """Each output is for its nearest target; [B, M, N] -> [B, N, R]."""
    nearest, which = apart.min(dim=1)  # [B, N]
    near = nearest.unsqueeze(-1) < limits
    # Found already: by an output before it that is near the same target.
    same = (which.unsqueeze(1) == which.unsqueeze(2)).tril(diagonal=-1)  # [B, N, earlier]
    before = same.to(apart.dtype) @ near.to(apart.dtype)
    return near & (before == 0)


def _nearest_left(apart: Tensor, limits: Tensor) -> Tensor:
    """Each output takes the nearest target that none before it took; [B, M, N] -> [B, N, R]."""
    left, hits = torch.ones(apart.shape[:2], dtype=torch.bool, device=apart.device), []
    places = torch.arange(apart.shape[1], device=apart.device)
    for output in apart.unbind(dim=-1):
        nearest, which = output.masked_fill(~left, math.inf).min(dim=1)
        hits.append(nearest.unsqueeze(-1) < limits)
        taken = (places == which.unsqueeze(-1)) & (nearest < math.inf).unsqueeze(-1)
        left = left & ~taken
    return torch.stack(hits, dim=1)
