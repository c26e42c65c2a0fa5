"""Typical elements of sets, one for each output of a network, and a network that starts there.

Legend: S sets, N elements and prototypes, F features.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from setwise.features import Features
from setwise.models.autoencoder import SetAutoencoder
from setwise.models.decoder import SetDecoder
from setwise.models.deep_sets import check_floats, check_size

# Most of them, from one start; it usually comes to rest before.
_ROUNDS = 50
# Deviation up to which a feature hardly varies: it is not magnified.
_CONSTANT = 0.02
# Of the output's weights, so that the prototypes are what is put out at first.
_QUIET = 0.1
# The least share of absent elements that outputs begin with: nothing is certain then.
_LEAST_ABSENT = 0.01


@torch.no_grad()
def find_prototypes(
    sets: Tensor,
    features: Features,
    *,
    valid: Tensor | None = None,
    starts: int = 8,
    seed: int = 0,
) -> Tensor:
    """N elements that together are near every one of the sets [S, N, F]; the result is [N, F].

    As k-means does, elements are given to the nearest prototype and prototypes moved to the average
    of their elements, in turn. But each prototype gets exactly one element of each set, in the
    pairing that costs least, and near is what costs little cross entropy. It is done from several
    ``starts``, random sets in a random order moved halfway to the average element, and the best
    result is kept.

    Where ``valid`` [S, N] is False there is no element, and some prototype gets none of that set;
    at least one set must have all N.

    >>> from setwise.features import Bernoulli
    >>> sets = torch.tensor([[[0.9, 0.1], [0.1, 0.8]], [[0.2, 0.9], [0.8, 0.1]]])
    >>> found = find_prototypes(sets, Features(Bernoulli(2)))
    >>> found[found[:, 0].argsort()]
    tensor([[0.1500, 0.8500],
            [0.8500, 0.1000]])
    """
    check_sets(sets, features, valid=valid)
    check_size("starts", starts)
    full = _full_sets(sets, valid)
    generator = torch.Generator().manual_seed(seed)
    average = features.average(_elements(sets, valid), dim=0)
    found = []
    for start in torch.randperm(len(full), generator=generator)[:starts].tolist():
        # In an order of our own: that of the elements of a set must not tell outputs apart.
        order = torch.randperm(sets.shape[1], generator=generator)
        first = full[start, order]
        centres = features.average(torch.stack([first, average.expand_as(first)]), dim=0)
        own, cost = _paired(sets, centres, features, valid)
        for _ in range(_ROUNDS):
            before = own
            centres = _averages(sets, own, features, valid)
            own, cost = _paired(sets, centres, features, valid)
            if own.equal(before):
                break
        found.append((cost, centres))
    return min(found, key=lambda one: one[0])[1]


@torch.no_grad()
def pair_with_prototypes(sets: Tensor, prototypes: Tensor, features: Features) -> Tensor:
    """Which element of each of the sets [S, N, F] goes with each of the prototypes: [S, N].

    Each gets exactly one, in the pairing that costs least cross entropy.

    >>> from setwise.features import Bernoulli
    >>> sets = torch.tensor([[[0.9, 0.1], [0.1, 0.8]], [[0.2, 0.9], [0.8, 0.1]]])
    >>> pair_with_prototypes(sets, torch.tensor([[0.8, 0.1], [0.2, 0.9]]), Features(Bernoulli(2)))
    tensor([[0, 1],
            [1, 0]])
    """
    check_sets(sets, features)
    check_sets(prototypes.unsqueeze(0), features, "prototypes")
    if prototypes.shape != sets.shape[1:]:
        raise ValueError(
            f"prototypes: expected shape {list(sets.shape[1:])}, one for each element of a set, "
            f"got {list(prototypes.shape)}"
        )
    return _paired(sets, prototypes.to(sets), features)[0]


@torch.no_grad()
def start_at_prototypes(
    model: SetAutoencoder,
    sets: Tensor,
    features: Features,
    prototypes: Tensor | None = None,
    valid: Tensor | None = None,
) -> None:
    """Let a new autoencoder of sets [S, N, F] begin with what they have in common.

    The first layer takes the average off every feature and divides those that vary by their
    standard deviation. Elements that are mostly alike, as grey features are, would else reach the
    latent variables as one large common signal with small differences, and learning what is common
    would move the latent variables of all sets together, far into saturation, before any of them
    says anything.

    Each output begins at one of the ``prototypes`` [N, F], by default those of `find_prototypes`,
    whatever the latent variables say, so that it can stand for the same part of every set from the
    start. It is for weights as they were drawn, and once: again, it would scale them again.

    Elements are there where ``valid`` [S, N] says so, by default all of them. The outputs of a
    model with presence begin by existing as often as an element does.
    """
    check_sets(sets, features, valid=valid)
    if prototypes is None:
        prototypes = find_prototypes(sets, features, valid=valid)
    first = next(iter(model.encoder.embed), None)
    if not isinstance(first, nn.Linear):
        raise ValueError("model: its encoder has no layer that reads elements one by one")
    expected = (model.decoder.size, features.width)
    if tuple(prototypes.shape) != expected or first.in_features != features.width:
        raise ValueError(
            f"prototypes: expected shape {list(expected)}, one for each output of a model that "
            f"reads {first.in_features} features, got {list(prototypes.shape)}"
        )
    elements = _elements(sets, valid).to(first.weight)
    deviation = elements.std(0, correction=0)
    first.weight.div_(deviation.where(deviation > _CONSTANT, 1.0))
    first.bias.copy_(-(first.weight @ elements.mean(0)))
    present = len(elements) / sets[..., 0].numel()
    start_outputs_at(model.decoder, prototypes, features, present)


@torch.no_grad()
def start_outputs_at(
    decoder: SetDecoder, prototypes: Tensor, features: Features, present: float = 1.0
) -> None:
    """Let each output of a new decoder begin at one of the prototypes [N, F], whatever it reads.

    With presence, each begins by existing as often as ``present`` says.
    """
    last = decoder.output
    last.weight.mul_(_QUIET)
    bias = as_logits(prototypes.to(last.weight), features)
    if decoder.presence:
        share = bias.new_tensor(present)
        bias = torch.cat([bias, share.logit(_LEAST_ABSENT).expand(len(bias), 1)], dim=-1)
    last.bias.copy_(bias.flatten())


def check_sets(
    sets: Tensor, features: Features, name: str = "sets", valid: Tensor | None = None
) -> None:
    """Refuse what are not some sets of elements of these features, by ``valid`` not all of them."""
    check_floats(name, sets, "[S, N, F]", 3, features.width)
    if sets.dim() != 3 or 0 in sets.shape:
        raise ValueError(
            f"{name}: expected at least one, of shape [S, N, F], got {tuple(sets.shape)}"
        )
    if valid is not None and (valid.shape != sets.shape[:2] or valid.dtype != torch.bool):
        raise ValueError(
            f"valid: expected booleans of shape {list(sets.shape[:2])}, got {valid.dtype} of shape "
            f"{list(valid.shape)}"
        )
    elements = _elements(sets, valid)
    if not len(elements):
        raise ValueError(f"valid: expected at least one element in the {len(sets)} sets")
    features.check_targets(name, elements)


def as_logits(elements: Tensor, features: Features) -> Tensor:
    """Outputs that stand for elements [*, F]; what never occurs in them is not ruled out."""
    parts = zip(features.blocks, features.split(elements), strict=True)
    return torch.cat([block.soft_logits(part) for block, part in parts], dim=-1)


def _elements(sets: Tensor, valid: Tensor | None) -> Tensor:
    """All that there are, one after the other [*, F]."""
    return sets.flatten(0, 1) if valid is None else sets[valid]


def _full_sets(sets: Tensor, valid: Tensor | None) -> Tensor:
    """Those that lack no element."""
    if valid is None:
        return sets
    full = sets[valid.all(dim=1)]
    if not len(full):
        raise ValueError(
            f"valid: expected at least one set with all of its {sets.shape[1]} elements, to begin "
            f"with; leave out what is filling in every set"
        )
    return full


def _averages(sets: Tensor, own: Tensor, features: Features, valid: Tensor | None) -> Tensor:
    """Of the elements that each centre got; every centre got one of a full set."""
    given = sets.gather(1, own.unsqueeze(-1).expand_as(sets))
    if valid is None:
        return features.average(given, dim=0)
    there = valid.gather(1, own)
    each = zip(given.unbind(1), there.unbind(1), strict=True)
    return torch.stack([features.average(part[real], dim=0) for part, real in each])


def _paired(
    sets: Tensor, centres: Tensor, features: Features, valid: Tensor | None = None
) -> tuple[Tensor, float]:
    """The element [S, N] of each set that each centre gets, and what all of them cost."""
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    elements = sets.flatten(0, 1)
    factors = features.dot_product(as_logits(centres, features), elements)
    # What depends on the element alone has no say in who gets it, and is left out.
    costs = factors.log_partition - factors.statistic @ factors.natural.mT
    costs = costs.unflatten(0, sets.shape[:2]).mT  # [S, centre, element]
    if valid is not None:
        costs = costs.masked_fill(~valid.unsqueeze(1), 0.0)  # whoever gets nothing
    pairs = [linear_sum_assignment(cost)[1] for cost in costs.double().cpu().numpy()]
    own = torch.from_numpy(np.stack(pairs)).to(sets.device)
    return own, costs.gather(2, own.unsqueeze(-1)).sum().item()
