"""How far the picture of an output is from that of its target.

Legend: K members, s examples, N elements, F features; V features of a patch; H, W height and width
of a picture.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from setwise.data.blocksworld_objects import BoxGrid
from setwise.data.blocksworld_pictures import paste
from setwise.experiments.tasks.patches import weights_sha256
from setwise.features import Features
from setwise.models import PatchAutoencoder

# Pixels of all pictures drawn at once; bounds the memory, at three numbers each.
PIXELS_AT_ONCE = 15_000_000


@dataclass(frozen=True)
class PictureError:
    """How far the picture of an output is from that of its target, in pixels from 0 to 1.

    The picture of a set is what `paste` makes of its decoded patches and its boxes: of the target
    too, so that neither the patch autoencoder nor the grid of the boxes counts as an error. Values
    are squares, whose mean has the root taken:

    ``rmse``     over all pixels, which is the number of the paper
    ``covered``  over those that the blocks of either picture cover, since most are just black
    """

    patches: PatchAutoencoder
    grid: BoxGrid
    metric: str = "rmse"
    curve_examples: int | None = 500

    def __call__(
        self, logits: Tensor, finite: Tensor, targets: Tensor, features: Features
    ) -> dict[str, Tensor]:
        some = max(1, PIXELS_AT_ONCE // (self.grid.height * self.grid.width))
        found = []
        for own, right in zip(logits.split(some, dim=1), targets.split(some), strict=True):
            expected = self._blocks(right)
            errors = [self._errors(self._blocks(self._activated(one)), expected) for one in own]
            found.append(torch.stack(errors, dim=1))
        rmse, covered = torch.cat(found, dim=-1)
        # What is no number is as wrong as can be.
        return {
            "rmse": rmse.masked_fill(~finite, 1.0),
            "covered": covered.masked_fill(~finite, 1.0),
        }

    def total(self, values: Tensor) -> Tensor:
        return values.mean(dim=-1).sqrt()

    @property
    def learned(self) -> str:
        return weights_sha256(self.patches)

    def to(self, device: torch.device) -> PictureError:
        return replace(self, patches=copy.deepcopy(self.patches).to(device))

    @torch.no_grad()
    def elements(self, patches: Tensor, boxes: Tensor) -> Tensor:
        """Blocks cut out of pictures, [*, N, 3, 32, 32], and their boxes [*, N, 4] as [*, N, F]."""
        return torch.cat([self.patches.encode(patches), self.grid.one_hots(boxes)], dim=-1)

    def pictures(self, elements: Tensor) -> Tensor:
        """Sets [*, N, F] of features in [0, 1] and chosen boxes as pictures [*, 3, H, W]."""
        return paste(*self._blocks(elements), self.grid.height, self.grid.width)[0]

    def pictures_of_logits(self, logits: Tensor) -> Tensor:
        """The same of the output [*, N, F] of a network."""
        return self.pictures(self._activated(logits))

    def _activated(self, logits: Tensor) -> Tensor:
        """Features in [0, 1]; boxes are chosen from logits as well."""
        seen, box = logits.split([self.patches.features, sum(self.grid.widths)], dim=-1)
        return torch.cat([seen.sigmoid(), box], dim=-1)

    def _blocks(self, elements: Tensor) -> tuple[Tensor, Tensor]:
        """Patches [*, N, 3, 32, 32] and boxes [*, N, 4]."""
        seen, box = elements.split([self.patches.features, sum(self.grid.widths)], dim=-1)
        return self.patches.decode(seen), self.grid.chosen(box)

    def _errors(self, ours: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> Tensor:
        """Mean squares [2, s] of all pixels and of the covered ones.

        Both pictures are black outside of a window around all boxes, which need not be drawn.
        """
        boxes = torch.cat([ours[1], expected[1]], dim=-2)
        left, top, right, bottom = _window(boxes)
        origin = torch.tensor([left, top, left, top], device=boxes.device)
        drawn = [
            paste(patches, boxes - origin, bottom - top, right - left)
            for patches, boxes in (ours, expected)
        ]
        (picture, cover), (target, target_cover) = drawn
        squares = (picture - target).square().mean(-3).sum((-2, -1))
        covered = (cover | target_cover).sum((-2, -1)).clamp(min=1)
        return torch.stack([squares / (self.grid.height * self.grid.width), squares / covered])


def _window(boxes: Tensor) -> list[int]:
    """Left, top, right and bottom of what boxes [*, 4] cover together; some box is not empty."""
    first, last = boxes.flatten(0, -2).split(2, dim=-1)
    filled = (first < last).all(-1)
    edges = torch.cat([first[filled].amin(0), last[filled].amax(0)])
    found: list[int] = edges.tolist()
    return found
