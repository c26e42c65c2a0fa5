"""Typical elements of sets, one for each output of a network.

Legend: S sets, N elements and prototypes, F features.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]
from torch import Tensor

from setwise.features import Features

# Classes and features that never occur keep a finite logit.
_RARE = 1e-3


@torch.no_grad()
def find_prototypes(
    sets: Tensor, features: Features, *, starts: int = 8, rounds: int = 50, seed: int = 0
) -> Tensor:
    """N elements that together are near every one of the sets [S, N, F]; the result is [N, F].

    As k-means does, elements are given to the nearest prototype and prototypes moved to the average
    of their elements, in turn. But each prototype gets exactly one element of each set, in the
    pairing that costs least, and near is what costs little cross entropy: the average then is what
    costs least. The order of the elements has no influence. It is done from several ``starts``,
    random sets moved halfway to the average element, and the best result is kept.

    >>> from setwise.features import Bernoulli
    >>> sets = torch.tensor([[[0.9, 0.1], [0.1, 0.8]], [[0.2, 0.9], [0.8, 0.1]]])
    >>> found = find_prototypes(sets, Features(Bernoulli(2)))
    >>> found[found[:, 0].argsort()]
    tensor([[0.1500, 0.8500],
            [0.8500, 0.1000]])
    """
    if sets.dim() != 3 or not len(sets):
        raise ValueError(
            f"sets: expected at least one, of shape [S, N, F], got {tuple(sets.shape)}"
        )
    generator = torch.Generator().manual_seed(seed)
    average = sets.mean((0, 1))
    found = []
    for start in torch.randint(len(sets), (starts,), generator=generator).tolist():
        centres, before = (sets[start] + average) / 2, None
        for _ in range(rounds):
            own, cost = _paired(sets, centres, features)
            if before is not None and own.equal(before):
                break
            before = own
            ordered = sets.gather(1, own.unsqueeze(-1).expand_as(sets))
            centres = ordered.mean(0)
        found.append((cost, centres))
    return min(found, key=lambda one: one[0])[1]


def as_logits(elements: Tensor, features: Features) -> Tensor:
    """Outputs that stand for elements [*, F]."""
    parts = zip(features.blocks, features.split(elements), strict=True)
    return features.from_probs(
        torch.cat(
            [
                part.clamp(_RARE, 1 - _RARE) if block.targets_are_probabilities else part
                for block, part in parts
            ],
            dim=-1,
        )
    )


def _paired(sets: Tensor, centres: Tensor, features: Features) -> tuple[Tensor, float]:
    """The element [S, N] of each set that each centre gets, and what all of them cost."""
    elements = sets.flatten(0, 1)
    factors = features.dot_product(as_logits(centres, features), elements)
    # What depends on the element alone has no say in who gets it, and is left out.
    costs = factors.log_partition - factors.statistic @ factors.natural.mT
    costs = costs.unflatten(0, sets.shape[:2]).mT  # [S, centre, element]
    pairs = [linear_sum_assignment(cost)[1] for cost in costs.cpu().numpy()]
    own = torch.from_numpy(np.stack(pairs)).to(sets.device)
    return own, costs.gather(2, own.unsqueeze(-1)).sum().item()
