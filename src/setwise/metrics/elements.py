"""How far apart single elements are, the ground that the set metrics stand on.

Legend: B sets, N outputs, M targets, F features; ``*`` any leading dimensions, flattened to B.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from setwise.arguments import Sets, check_call, check_presence
from setwise.features import Family, Features
from setwise.kernels.autocast import no_autocast
from setwise.metrics.presence import present


@dataclass(frozen=True)
class Elements:
    """Discretised outputs beside their targets, both in the space of the targets."""

    lead: torch.Size
    features: Features
    outputs: Tensor  # [B, N, F]
    targets: Tensor  # [B, M, F]
    output_valid: Tensor  # [B, N]
    target_valid: Tensor  # [B, M]


def prepare(
    input: Tensor,
    target: Tensor,
    features: Features | None,
    input_valid: Tensor | None,
    target_valid: Tensor | None,
    reduction: str,
    presence: Tensor | None = None,
    threshold: float = 0.5,
    tolerance: float = 0.0,
) -> Elements:
    """Check a call of a metric and discretise its outputs."""
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float):
        raise TypeError(f"tolerance: expected a number, got {tolerance!r}")
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance: must be finite and not negative, got {tolerance!r}")
    sets = check_call(input, target, features, input_valid, target_valid, None, reduction)
    elements = elements_of(sets)
    logits = check_presence(presence, input, sets)
    if logits is None:
        return elements
    return replace(elements, output_valid=elements.output_valid & present(logits, threshold))


def elements_of(sets: Sets) -> Elements:
    """The discretised outputs of a checked call."""
    target_mask, output_mask = sets.masks()
    return Elements(
        lead=sets.lead,
        features=sets.features,
        outputs=sets.features.discretise(sets.logits.detach()),
        targets=sets.target.detach(),
        output_valid=output_mask,
        target_valid=target_mask,
    )


def differ(elements: Elements, tolerance: float) -> Tensor:
    """Which pairs of a target and an output are not the same element: [B, M, N] of booleans.

    Continuous features may be ``tolerance`` apart; all others must be equal.
    """
    with no_autocast(elements.targets):
        parts = [block.differ(x, y, tolerance) for block, x, y in _blocks(elements)]
    return torch.stack(parts).any(dim=0)


def error(elements: Elements) -> Tensor:
    """Mean error of each pair [B, M, N] over all questions that the features answer."""
    with no_autocast(elements.targets):
        parts = [block.error(x, y) for block, x, y in _blocks(elements)]
    questions = sum(block.questions for block in elements.features.blocks)
    return torch.stack(parts).sum(dim=0) / questions


def distance(elements: Elements) -> Tensor:
    """How far each pair [B, M, N] is apart in its continuous features, by Euclid's measure.

    Infinity where any other feature differs.
    """
    with no_autocast(elements.targets):
        parts = [block.distance(x, y).square() for block, x, y in _blocks(elements)]
    return torch.stack(parts).sum(dim=0).sqrt().masked_fill(differ(elements, math.inf), math.inf)


def _blocks(elements: Elements) -> Iterator[tuple[Family, Tensor, Tensor]]:
    features = elements.features
    yield from zip(
        features.blocks,
        features.split(elements.targets),
        features.split(elements.outputs),
        strict=True,
    )
