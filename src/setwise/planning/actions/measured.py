"""Symbols of measured features: what numbers that shake are called.

Legend: S sets, N and M elements, F numbers of an element, E elements of all sets.

Features of any `setwise.Features` become symbols one by one, so that they stay arguments of
actions, see `measured_feature`. How much a value shakes is learned from elements that a step leaves
alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from setwise.experiments import checkpoint
from setwise.features import Family, Features
from setwise.models.deep_sets import check_floats
from setwise.models.prototypes import check_sets
from setwise.outside import named
from setwise.planning.actions.left_alone import filled, left_alone, matched_pairs
from setwise.planning.actions.measured_feature import MeasuredFeature
from setwise.planning.actions.quantiser import share_of_pairs
from setwise.planning.actions.recording import Recording, from_elements
from setwise.planning.actions.symbols import (
    Element,
    State,
    Symbols,
    UnknownSymbolError,
    Value,
)

_VERSION = 1


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
        words: Mapping[str, Sequence[Value]] | None = None,
        before_valid: Tensor | None = None,
        after_valid: Tensor | None = None,
    ) -> MeasuredSymbols:
        """Learn from sets ``before`` [T, N, F] and ``after`` [T, M, F], elements in any order.

        A step may change any element, but of each feature it must leave half of them alone. Where
        sets have different sizes, ``before_valid`` [T, N] and ``after_valid`` [T, M] are true at
        elements. ``words`` says what the classes of features are called, by their names.
        """
        check_sets(before, features, "before", before_valid)
        check_sets(after, features, "after", after_valid)
        if len(before) != len(after):
            raise ValueError(f"{len(before)} sets before, but {len(after)} after")
        called = _names(names, len(features.blocks))
        if unknown := set(words or ()).difference(called):
            raise ValueError(
                f"words: expected those of features, {', '.join(called)}, got {sorted(unknown)}"
            )
        before, there = filled(before, before_valid)
        after, again = filled(after.to(before), after_valid)
        pairs = matched_pairs(before, after, features, there, again)
        if not len(pairs):
            raise ValueError(
                "no step has an element both before and after: nothing tells how values shake"
            )
        real = torch.cat([there.flatten(), again.flatten()])
        rows = torch.cat([before.flatten(0, 1), after.flatten(0, 1)])[real]
        pairs = (real.cumsum(0) - 1)[pairs]
        parts, kept = [], []
        for name, block, values in zip(called, features.blocks, features.split(rows), strict=True):
            alone = left_alone(block, values, pairs)
            parts.append(MeasuredFeature.fit(block, values, alone, (words or {}).get(name)))
            kept.append(share_of_pairs(parts[-1].encode(values), alone))
        return cls(features, called, tuple(parts), sum(kept) / len(kept))

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

    def encode(self, sets: Tensor, valid: Tensor | None = None) -> list[list[Element]]:
        """The elements of each set [S, N, F], of which ``valid`` [S, N] are there."""
        if sets.dim() != 3:
            raise ValueError(
                f"sets: expected [sets, elements, {self.features.width}], got {tuple(sets.shape)}"
            )
        if valid is None:
            valid = torch.ones(sets.shape[:2], dtype=torch.bool)
        elif valid.shape != sets.shape[:2] or valid.dtype != torch.bool:
            raise ValueError(
                f"valid: expected bool {list(sets.shape[:2])}, got {valid.dtype} "
                f"{list(valid.shape)}"
            )
        elements = iter(self.codes(sets[valid]).tolist())
        return [[self._element(next(elements)) for _ in range(n)] for n in valid.sum(-1).tolist()]

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

    def recording(
        self,
        before: Tensor,
        after: Tensor,
        *,
        before_valid: Tensor | None = None,
        after_valid: Tensor | None = None,
        actions: Sequence[str] | None = None,
    ) -> Recording:
        """Steps between sets, as a recording to learn from.

        A model of it is given sets as they are measured, [N, F]; those of its plans are typical.
        """
        sides = self.encode(before, before_valid), self.encode(after, after_valid)
        found = from_elements(*sides, self.names, actions)
        symbols = MeasuredStates(self.names, found.symbols.values, reader=self)
        return Recording(symbols, found.before, found.after, found.actions)

    def save(self, path: str | Path) -> None:
        """Write a file of safetensors."""
        tensors: dict[str, Tensor] = {}
        for number, part in enumerate(self.parts):
            tensors |= part.tensors(str(number))
        said = {
            "measured": _VERSION,
            "names": self.names,
            "stable": self.stable,
            "parts": [part.facts() for part in self.parts],
        }
        checkpoint.write(Path(path), tensors, said)

    @classmethod
    def load(cls, path: str | Path, families: Iterable[type[Family]] = ()) -> MeasuredSymbols:
        """What `save` wrote; ``families`` of your own that features are of have to be given."""
        path = Path(path)
        with named(path, KeyError, TypeError, AttributeError, OverflowError):
            tensors, said = checkpoint.read(path)
            if said.get("measured") != _VERSION:
                raise ValueError("holds no measured symbols, or those of another version")
            own = tuple(families)
            parts = tuple(
                MeasuredFeature.from_file(facts, tensors, str(number), own)
                for number, facts in enumerate(said["parts"])
            )
            if len({part.typical.dtype for part in parts}) != 1:
                raise ValueError("expected features, all in numbers of one kind")
            if not all(isinstance(name, str) for name in said["names"]):
                raise ValueError(f"names: expected words, got {said['names']!r:.60}")
            if not math.isfinite(said["stable"]):
                raise ValueError(f"stable: expected a number, got {said['stable']!r:.60}")
            names = _names(said["names"], len(parts))
            features = Features(*(part.family for part in parts))
            return cls(features, names, parts, float(said["stable"]))

    def _element(self, codes: Sequence[int]) -> Element:
        return tuple(part.value(code) for part, code in zip(self.parts, codes, strict=True))


@dataclass(frozen=True)
class MeasuredStates(Symbols):
    """Symbols whose sets are given as tensors of what is measured."""

    reader: MeasuredSymbols = field(kw_only=True, compare=False, repr=False)

    def state(self, elements: Iterable[Element] | Tensor) -> State:
        """A set [N, F] as it is measured, or a list of elements by their symbols."""
        if isinstance(elements, Tensor):
            [elements] = self.reader.encode(elements.unsqueeze(0))
        return super().state(elements)

    def tensor(self, state: State) -> Tensor:
        """What is typical of the elements of a set: [N, F]."""
        return self.reader.decode(self.elements(state))


def _names(given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    """One name for each feature, all different."""
    names = [f"feature{number}" for number in range(count)] if given is None else given
    if len(names) != count:
        raise ValueError(f"names: expected {count}, one a feature, got {len(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"names: expected different ones, got {list(names)}")
    return tuple(names)
