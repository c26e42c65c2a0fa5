"""Codes of looks: which pictures show the same thing in the same condition, whatever the light.

Legend: E pictures, P pixels along a patch, K codes.

A look is a thing, which no step changes, and its condition, which some do, such as its material.
Things are learned from pairs of pictures between which a look may have changed, but not the thing;
then, of each thing, conditions from pairs between which nothing has changed but light and place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.planning.actions.quantiser import Quantiser, require_numbers, share_of_pairs

_SIDE = 8  # pixels of a patch that is compared
_DARK = 0.05  # of a brightness of 1: what is darker is all the same


@dataclass(frozen=True)
class Looks:
    """A code for each picture [*, 3, P, P] in [0, 1]: its thing, and the condition of that."""

    things: Quantiser
    conditions: tuple[Quantiser, ...]  # of each thing
    typical: Tensor  # [K, 3, P, P]: what pictures of each code look like
    stable: float  # the share of pictures between which nothing changed that have one code

    @classmethod
    @torch.no_grad()
    def fit(cls, pictures: Tensor, same_thing: Tensor, same_look: Tensor) -> Looks:
        """Learn from pictures [E, 3, P, P], of which pairs [n, 2] and [m, 2] show the same."""
        for name, pairs in (("same_thing", same_thing), ("same_look", same_look)):
            if pairs.dim() != 2 or pairs.shape[1] != 2 or len(pairs) < 4:
                raise ValueError(
                    f"{name}: expected at least four pairs of pictures, got {tuple(pairs.shape)}"
                )
        numbers = comparable(pictures)
        things = Quantiser.fit(numbers, same_thing)
        thing = things.encode(numbers)
        conditions = []
        for number in range(things.count):
            own = thing == number
            place = own.cumsum(0) - 1  # among the pictures of this thing
            pairs = place[same_look[own[same_look].all(-1)]]
            conditions.append(Quantiser.fit(numbers[own], pairs))
        found = cls(things, tuple(conditions), pictures[:0], 0.0)
        codes = found._codes(numbers)
        typical = torch.stack([pictures[codes == code].mean(0) for code in range(found.count)])
        return cls(things, found.conditions, typical, share_of_pairs(codes, same_look))

    @property
    def count(self) -> int:
        """How many codes there are."""
        return sum(one.count for one in self.conditions)

    @torch.no_grad()
    def encode(self, pictures: Tensor) -> Tensor:
        """The codes [*] of pictures [*, 3, P, P]."""
        if pictures.shape[-3:] != self.typical.shape[1:]:
            expected = ", ".join(map(str, self.typical.shape[1:]))
            raise ValueError(f"pictures: expected [*, {expected}], got {tuple(pictures.shape)}")
        flat = pictures.reshape(-1, *pictures.shape[-3:])
        return self._codes(comparable(flat)).reshape(pictures.shape[:-3])

    def decode(self, codes: Tensor) -> Tensor:
        """What is typical of codes [*]: [*, 3, P, P]."""
        return self.typical[codes]

    def tensors(self) -> dict[str, Tensor]:
        """What they are made of, by names for a file."""
        found = {"typical": self.typical}
        for number, part in enumerate((self.things, *self.conditions)):
            found |= part.tensors(str(number))
        return found

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], quantisers: int, stable: float) -> Looks:
        """What `tensors` gave; from a file of somebody else's it may be anything."""
        things, *conditions = (
            Quantiser.from_tensors(tensors, str(number)) for number in range(quantisers)
        )
        found = cls(things, tuple(conditions), tensors["typical"], stable)
        shape = tuple(found.typical.shape)
        require_numbers("typical", found.typical, things.centre.dtype)
        if len(shape) != 4 or shape[:2] != (found.count, 3) or 0 in shape:
            raise ValueError(f"typical: expected [{found.count}, 3, rows, columns], got {shape}")
        sizes = {len(part.centre) for part in (things, *conditions)}
        if things.count != len(conditions) or sizes != {3 * _SIDE**2}:
            raise ValueError(
                f"expected conditions of {things.count} things, in {3 * _SIDE**2} numbers each, "
                f"got {len(conditions)}, in {sorted(sizes)}"
            )
        return found

    def _codes(self, numbers: Tensor) -> Tensor:
        """All conditions of the first thing are counted before those of the second."""
        thing = self.things.encode(numbers)
        codes = torch.empty_like(thing)
        start = 0
        for number, conditions in enumerate(self.conditions):
            own = thing == number
            codes[own] = start + conditions.encode(numbers[own])
            start += conditions.count
        return codes


def comparable(pictures: Tensor) -> Tensor:
    """Pictures [E, 3, P, P] as numbers [E, A] that light shifts: it multiplies what is seen."""
    small = torch.nn.functional.adaptive_avg_pool2d(pictures, _SIDE)
    return (small + _DARK).log().flatten(1)
