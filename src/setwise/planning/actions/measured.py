"""Symbols of measured features: what numbers that shake are called.

Legend: S sets, N and M elements, F numbers of an element, w of one of its features, E elements of
all sets, W numbers of a statistic, K codes.

Features of any `setwise.Features` become symbols one by one, so that they stay arguments of
actions. One that is right or wrong, such as a class, is its own symbol. Others are measured: codes
are learned in the space of their statistic, in which the cost of an element is a dot product, from
how much elements shake that a step leaves alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.features import Family, Features
from setwise.losses import assign
from setwise.models.deep_sets import check_floats
from setwise.models.prototypes import check_sets
from setwise.planning.actions.quantiser import Quantiser, share_of_pairs
from setwise.planning.actions.recording import Recording, from_elements
from setwise.planning.actions.symbols import Element, UnknownSymbolError, Value

_SHAKING = 0.25  # the share of pairs that differ by shaking alone, and by little of that
_ALONE = 6.0  # times this difference: what differs by less was left alone
_BEYOND = 2.0  # of the furthest point of a code: what is further away is something else
# Values on a grid: with fewer codes than values, some are cut in two, until codes are as many.
_PATIENCE = 8
_SOME = 100  # elements that tell whether a feature is right or wrong
_MOST_EXACT = 1000  # different values of a feature that is right or wrong


@dataclass(frozen=True)
class MeasuredFeature:
    """The codes of one feature: numbers in the order of what is typical of them."""

    family: Family
    typical: Tensor  # [K, w]
    quantiser: Quantiser | None  # None where the feature is right or wrong
    order: Tensor  # [K]: the code of each centre of the quantiser
    reach: Tensor  # [K]: how far from its centre what a code names may be

    def encode(self, values: Tensor) -> Tensor:
        """The codes [*] of values [*, w]; an error if one is like none that was seen."""
        flat = values.reshape(-1, values.shape[-1])
        if self.quantiser is None:
            apart = self.family.differ(_exact(self.family, flat), self.typical, 0.0)
            codes, strange = (~apart).int().argmax(-1), apart.all(-1)
        else:
            points = self.family.statistic(flat)
            centre, distance = self.quantiser.nearest(points)
            codes = self.order[centre]
            strange = distance > self.reach[codes]
        if bool(strange.any()):
            value = flat[int(strange.nonzero()[0])].tolist()
            raise UnknownSymbolError(
                f"{value}: is like none of the {len(self.typical)} that were seen"
            )
        return codes.reshape(values.shape[:-1])

    def value(self, code: int) -> Value:
        """What a code is called: a class or a whole number as it is, all else by the code."""
        typical = self.typical[code]
        if self.quantiser is None and self.family.is_choice:
            return int(typical.argmax())
        if self.quantiser is None and len(typical) == 1 and bool(typical == typical.round()):
            return int(typical)
        return code


@dataclass(frozen=True)
class MeasuredSymbols:
    """Elements by the codes of their features.

    >>> import setwise as sw
    >>> features = sw.Features(sw.Categorical(3), sw.Gaussian(1))  # who it is, and where
    >>> generator = torch.Generator().manual_seed(0)
    >>> places = torch.randint(4, (200, 3), generator=generator)
    >>> later = places.clone()
    >>> later[:, 0] = (places[:, 0] + 1) % 4  # the first moves, the others stay
    >>> def seen(places):
    ...     shaken = places + 0.05 * torch.randn(places.shape, generator=generator)
    ...     return torch.cat([torch.eye(3).expand(200, 3, 3), shaken.unsqueeze(-1)], dim=-1)
    >>> symbols = MeasuredSymbols.fit(seen(places), seen(later), features, names=["who", "place"])
    >>> symbols.sizes
    {'who': 3, 'place': 4}
    >>> symbols.encode(torch.tensor([[[0.0, 1.0, 0.0, 1.93], [1.0, 0.0, 0.0, 0.08]]]))
    [[(1, 2), (0, 0)]]
    """

    features: Features
    names: tuple[str, ...]
    parts: tuple[MeasuredFeature, ...]
    stable: float  # the share of features that a step left alone and that kept their code

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        before: Tensor,
        after: Tensor,
        features: Features,
        *,
        names: Sequence[str] | None = None,
    ) -> MeasuredSymbols:
        """Learn from sets ``before`` [T, N, F] and ``after`` [T, M, F], elements in any order.

        A step may change any element, but of each feature it must leave half of them alone.
        """
        _check(before, after, features, names)
        after = after.to(before)
        pairs = _pairs(before, after, features)
        rows = torch.cat([before.flatten(0, 1), after.flatten(0, 1)])
        parts, kept = [], []
        for block, values in zip(features.blocks, features.split(rows), strict=True):
            alone = _left_alone(block, values, pairs)
            parts.append(_fit(block, values, alone))
            kept.append(share_of_pairs(parts[-1].encode(values), alone))
        said = names or [f"feature{number}" for number in range(len(parts))]
        return cls(features, tuple(said), tuple(parts), sum(kept) / len(kept))

    @property
    def sizes(self) -> dict[str, int]:
        """How many codes each feature has."""
        return {n: len(part.typical) for n, part in zip(self.names, self.parts, strict=True)}

    def codes(self, sets: Tensor) -> Tensor:
        """The codes [*, features] of elements [*, F]."""
        check_floats("sets", sets, "[*, F]", 1, self.features.width)
        self.features.check_targets("sets", sets)
        split = self.features.split(sets.to(self.parts[0].typical))
        blocks = zip(self.names, self.parts, split, strict=True)
        found = []
        for name, part, values in blocks:
            try:
                found.append(part.encode(values))
            except UnknownSymbolError as error:
                raise UnknownSymbolError(f"{name} {error}") from error
        return torch.stack(found, dim=-1)

    def encode(self, sets: Tensor) -> list[list[Element]]:
        """The elements of each set [S, N, F]."""
        if sets.dim() != 3:
            raise ValueError(
                f"sets: expected [sets, elements, {self.features.width}], got {tuple(sets.shape)}"
            )
        return [
            [tuple(part.value(c) for part, c in zip(self.parts, e, strict=True)) for e in one]
            for one in self.codes(sets).tolist()
        ]

    def decode(self, elements: Iterable[Element]) -> Tensor:
        """What is typical of elements: [n, F]."""
        names = [{p.value(c): c for c in range(len(p.typical))} for p in self.parts]
        rows = []
        for element in elements:
            if len(element) != len(names) or any(
                v not in n for v, n in zip(element, names, strict=True)
            ):
                raise ValueError(f"elements: {element} is made of none of the symbols")
            rows.append(
                torch.cat(
                    [p.typical[n[v]] for p, n, v in zip(self.parts, names, element, strict=True)]
                )
            )
        return torch.stack(rows) if rows else torch.zeros(0, self.features.width)

    def recording(self, before: Tensor, after: Tensor) -> Recording:
        """Steps between sets, as a recording to learn from."""
        return from_elements(self.encode(before), self.encode(after), self.names)


def _fit(family: Family, values: Tensor, alone: Tensor) -> MeasuredFeature:
    """The codes of a feature of values [E, w], of which pairs [n, 2] were left alone."""
    if not bool(family.distance(values[:_SOME], values[-_SOME:]).any()):  # right or wrong, or one
        typical = _exact(family, values).unique(dim=0)
        if len(typical) > _MOST_EXACT:
            raise ValueError(
                f"{type(family).__name__}: {len(typical)} different values, more than "
                f"{_MOST_EXACT}; symbols have to come again"
            )
        none = torch.zeros(0)
        return MeasuredFeature(family, typical, None, none, none)
    quantiser = Quantiser.fit(family.statistic(values), alone, patience=_PATIENCE)
    centre, distance = quantiser.nearest(family.statistic(values))
    typical = torch.stack(
        [family.average(values[centre == number], 0) for number in range(quantiser.count)]
    )
    ordered = torch.tensor(sorted(range(len(typical)), key=lambda number: typical[number].tolist()))
    reach = torch.stack([_BEYOND * distance[centre == number].max() for number in ordered])
    return MeasuredFeature(family, typical[ordered], quantiser, ordered.argsort(), reach)


def _exact(family: Family, values: Tensor) -> Tensor:
    """Values of a feature that is right or wrong, as answers."""
    return family.discretise(family.from_mean(values))


def _pairs(before: Tensor, after: Tensor, features: Features) -> Tensor:
    """Elements [n, 2] that are taken for the same before and after, each set matched as a whole.

    The first number counts the elements of all sets before, the second those of all sets after,
    from where the first left off. Every feature counts as much as another. Some pairs will be
    wrong, which those that shaking explains are not (see `_left_alone`).
    """
    cost = before.new_zeros(len(before), before.shape[1], after.shape[1])
    sides = zip(features.blocks, features.split(before), features.split(after), strict=True)
    for family, one, other in sides:
        distance = family.distance(one, other)
        if not bool(distance.any()):
            distance = family.differ(one, other, 0.0).to(before)
        cost += distance / distance.mean().clamp(min=torch.finfo(cost.dtype).tiny)
    matched = assign(cost)  # [T, N]
    step, element = (matched >= 0).nonzero(as_tuple=True)
    again = before.shape[0] * before.shape[1] + step * after.shape[1] + matched[step, element]
    return torch.stack([step * before.shape[1] + element, again], dim=-1)


def _left_alone(family: Family, values: Tensor, pairs: Tensor) -> Tensor:
    """Those of the pairs [n, 2] of which the feature differs by no more than by shaking."""
    one, other = (family.statistic(values[side]) for side in pairs.unbind(-1))
    apart = (one - other).norm(dim=-1)
    return pairs[apart <= _ALONE * apart.quantile(_SHAKING)]


def _check(before: Tensor, after: Tensor, features: Features, names: Sequence[str] | None) -> None:
    check_sets(before, features, "before")
    check_sets(after, features, "after")
    if len(before) != len(after):
        raise ValueError(f"{len(before)} sets before, but {len(after)} after")
    if names is not None and len(names) != len(features.blocks):
        raise ValueError(f"names: expected {len(features.blocks)}, one a feature, got {len(names)}")
    if names is not None and len(set(names)) < len(names):
        raise ValueError(f"names: expected different ones, got {list(names)}")
