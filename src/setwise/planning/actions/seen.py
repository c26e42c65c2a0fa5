"""Symbols of things seen: what a picture of a thing is called, and the place where it is.

Legend: S sets, N elements, P pixels along a patch, K codes of looks.

A set of things seen becomes a set of elements (look, place), as a model of actions needs it. The
free place of each column is an element as well, with a look of its own, as the blank of a puzzle
is: what is put down must lie on something, and what is touched must have nothing on it, and both
are said by where the free place is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from setwise.experiments import checkpoint
from setwise.outside import named
from setwise.planning.actions.looks import Looks
from setwise.planning.actions.places import MOST_COLUMNS, Places
from setwise.planning.actions.quantiser import FEWEST_PAIRS
from setwise.planning.actions.recording import Recording, from_elements
from setwise.planning.actions.symbols import Element

NAMES = ("look", "place")
FREE = "free"
_VERSION = 1


@dataclass(frozen=True)
class Sights:
    """Sets of things seen: a picture and a box of each, things of a set in any order."""

    patches: Tensor  # [S, N, 3, P, P] in [0, 1]
    boxes: Tensor  # [S, N, 4]: (x1, y1, x2, y2), y downwards

    def __post_init__(self) -> None:
        patches, boxes = self.patches, self.boxes
        if patches.dim() != 5 or patches.shape[2] != 3 or not patches.is_floating_point():
            raise ValueError(
                f"patches: expected numbers in [0, 1] of shape [sets, elements, 3, rows, columns], "
                f"got {patches.dtype} {tuple(patches.shape)}"
            )
        if boxes.shape != (*patches.shape[:2], 4) or 0 in boxes.shape:
            raise ValueError(
                f"boxes: expected {[*patches.shape[:2], 4]}, one for each patch, "
                f"got {list(boxes.shape)}"
            )
        if bool((boxes[..., 2:] <= boxes[..., :2]).any()):
            raise ValueError("boxes: expected (x1, y1, x2, y2) with x1 < x2 and y1 < y2 in each")

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, which: Tensor | slice) -> Sights:
        return Sights(self.patches[which], self.boxes[which])


@dataclass(frozen=True)
class SeenSymbols:
    """Looks and places by name."""

    looks: Looks
    places: Places
    boxes: dict[Element, list[float]]  # typical of each look at each place

    @classmethod
    def fit(cls, before: Sights, after: Sights) -> SeenSymbols:
        """Learn symbols from steps between sets seen, ``before`` and ``after`` of each.

        Where a step takes one thing from its place to another, all things are taken to look the
        same as before, each at its place and that one at its new. Where it leaves all places as
        they are, some may look different. By such pairs of pictures `Looks` learns what light,
        camera and place do.
        """
        if len(before) != len(after):
            raise ValueError(f"{len(before)} sets before, but {len(after)} after")
        places = Places.fit(torch.cat([before.boxes.flatten(0, 1), after.boxes.flatten(0, 1)]))
        moved: list[tuple[int, int]] = []
        stayed: list[tuple[int, int]] = []
        starts = before.boxes.shape[1], after.boxes.shape[1]
        for step, sides in enumerate(zip(before.boxes, after.boxes, strict=True)):
            one, other = map(places.encode, sides)
            left, came = set(one).difference(other), set(other).difference(one)
            if len(left) != len(came) or len(left) > 1:
                continue  # more than one thing was moved: nobody knows which is which
            for number, place in enumerate(one):
                [again] = came if place in left else {place}
                pair = starts[0] * step + number, starts[1] * step + other.index(again)
                (moved if left else stayed).append(pair)
        if len(moved) < FEWEST_PAIRS:
            raise ValueError(
                f"of {len(before)} steps too few take one thing from its place to another: nothing "
                f"tells what light and place do to a picture"
            )
        pictures = [side.patches.flatten(0, 1) for side in (before, after)]
        shift = torch.tensor([0, len(pictures[0])])
        same_thing, same_look = (
            torch.tensor(sorted(pairs)) + shift for pairs in (moved + stayed, moved)
        )
        looks = Looks.fit(torch.cat(pictures), same_thing, same_look)
        found = cls(looks, places, {})
        return replace(found, boxes=_typical_boxes(found, (before, after)))

    def encode(self, sights: Sights) -> list[list[Element]]:
        """The elements of each set: (look, place) of each thing, and of each free place."""
        codes = self.looks.encode(sights.patches).tolist()
        found: list[list[Element]] = []
        for own, boxes in zip(codes, sights.boxes, strict=True):
            places = self.places.encode(boxes)
            free = [(FREE, place) for place in self.places.free(places)]
            found.append([*zip(own, places, strict=True), *free])
        return found

    def decode(self, elements: Iterable[Element]) -> Sights:
        """A set of one: what is typical of the things among the elements, free places left out."""
        things = [element for element in elements if element[0] != FREE]
        if unknown := [thing for thing in things if thing not in self.boxes]:
            raise ValueError(f"elements: {unknown[0]} was never seen")
        looks = torch.tensor([int(look) for look, _ in things])
        boxes = torch.tensor([self.boxes[thing] for thing in things])
        return Sights(self.looks.decode(looks).unsqueeze(0), boxes.unsqueeze(0))

    def recording(self, before: Sights, after: Sights) -> Recording:
        """Steps between sets seen, as a recording to learn from."""
        return from_elements(self.encode(before), self.encode(after), NAMES)

    def save(self, path: str | Path) -> None:
        """Write a file of safetensors."""
        looks, places = self.looks, self.places
        said = {
            "symbols": _VERSION,
            "quantisers": 1 + len(looks.conditions),
            "stable": looks.stable,
            "middles": places.middles,
            "reach": places.reach,
            "boxes": [[*element, box] for element, box in self.boxes.items()],
        }
        checkpoint.write(Path(path), looks.tensors(), said)

    @classmethod
    def load(cls, path: str | Path) -> SeenSymbols:
        """What `save` wrote."""
        path = Path(path)
        with named(path, KeyError, TypeError, OverflowError):
            tensors, said = checkpoint.read(path)
            if said.get("symbols") != _VERSION:
                raise ValueError("holds no symbols, or those of another version")
            looks = Looks.from_tensors(tensors, said["quantisers"], _numbers(said["stable"])[0])
            places = Places(tuple(_numbers(*said["middles"])), _numbers(said["reach"])[0])
            boxes: dict[Element, list[float]]
            boxes = {(look, place): _numbers(*box) for look, place, box in said["boxes"]}
            if not 0 < len(places.middles) <= MOST_COLUMNS:
                raise ValueError(f"expected 1 to {MOST_COLUMNS} columns, got {len(places.middles)}")
            if any(len(box) != 4 for box in boxes.values()):
                raise ValueError("expected four numbers for each box")
            if unknown := [one for one, _ in boxes if one not in range(looks.count)]:
                raise ValueError(f"boxes of a look that there is not: {unknown[0]!r:.60}")
            return cls(looks, places, boxes)


def _numbers(*given: object) -> list[float]:
    """Finite numbers of a file; anything may be there."""
    if not all(isinstance(one, int | float) and math.isfinite(one) for one in given):
        raise ValueError(f"expected finite numbers, got {given!r:.60}")
    return list(given)  # type: ignore[arg-type]


def _typical_boxes(symbols: SeenSymbols, seen: Iterable[Sights]) -> dict[Element, list[float]]:
    boxes: dict[Element, list[Tensor]] = {}
    for sights in seen:
        for elements, own in zip(symbols.encode(sights), sights.boxes, strict=True):
            for element, box in zip(elements, own, strict=False):  # free places come last
                boxes.setdefault(element, []).append(box.double())
    return {element: torch.stack(found).mean(0).tolist() for element, found in boxes.items()}


def agreement(codes: Tensor, truth: Tensor) -> float:
    """The share of elements [n] whose codes name their true kinds [n], as well as they can.

    Codes are names: each kind gets another, in the way that suits most elements.

    >>> agreement(torch.tensor([7, 7, 2, 2]), torch.tensor([0, 0, 1, 0]))
    0.75
    """
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    counts = torch.zeros(int(codes.max()) + 1, int(truth.max()) + 1)
    counts.index_put_((codes, truth), torch.ones(len(codes)), accumulate=True)
    rows, columns = linear_sum_assignment(counts.numpy(), maximize=True)
    return float(counts[rows, columns].sum()) / len(codes)
