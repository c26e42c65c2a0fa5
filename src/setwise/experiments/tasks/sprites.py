"""Pictures of sprites, and the sets of objects that they show.

Legend: K members, s examples, N outputs, M places for objects, F features, R limits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from setwise.data.sprites import SPRITE, draw_sprites, sprite_objects
from setwise.experiments.tasks.task import CPU, DATA, DataConfig, Task, require_split
from setwise.features import Features, Gaussian
from setwise.metrics.precision import precision_of_sets, rank

# Within which distance an object is found; pictures span 2. The names of the numbers follow.
LIMITS = {"ap": math.inf, "ap_0.25": 0.25, "ap_0.1": 0.1, "ap_0.05": 0.05, "ap_0.025": 0.025}
# Those of papers on CLEVR, 1, 0.5, 0.25 and 0.125, whose scenes span 6: a third of each.
LIMITS |= {"ap_1/3": 1 / 3, "ap_1/6": 1 / 6, "ap_1/12": 1 / 12, "ap_1/24": 1 / 24}
# Pictures drawn at once; bounds the memory.
_AT_ONCE = 1000


@dataclass(frozen=True)
class SpritesData(DataConfig):
    """Scenes of ``least`` to ``most`` sprites; networks say which of their outputs exist."""

    kind: ClassVar[str] = "sprites"
    side: int = 64
    least: int = 3
    most: int = 10
    pictures: int = 10_000
    # The first `train` pictures are trained on, the others are held out.
    train: int = 9_000
    seed: int = 0
    # Of places, in the loss: what a distance costs is 1 / (2 scale^2) times its square.
    scale: float = 0.4

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        require_split("data", self.train, self.pictures)
        generator = torch.Generator().manual_seed(self.seed)
        pictures, targets = [], []
        for at in range(0, self.pictures, _AT_ONCE):
            number = min(_AT_ONCE, self.pictures - at)
            objects, valid = sprite_objects(number, generator, least=self.least, most=self.most)
            # What there is to see is drawn on the CPU and the same anywhere; a GPU paints faster.
            painted = draw_sprites(objects.to(device), valid.to(device), self.side)
            pictures.append(painted.cpu())
            targets.append(torch.cat([objects, valid.unsqueeze(-1).to(objects.dtype)], dim=-1))
        features = Features(*SPRITE.blocks[:-1], Gaussian(2, scale=self.scale))
        return Task(
            torch.cat(pictures), torch.cat(targets), self.train, features, None, PicturePrecision()
        )

    def numbers(self) -> int:
        return self.pictures * (3 * self.side**2 + self.most * (SPRITE.width + 1))


@dataclass(frozen=True)
class PicturePrecision:
    """The average precision of each picture, by the definition of that name; NaN if it is empty."""

    limits: tuple[tuple[str, float], ...] = tuple(LIMITS.items())
    metric: str = "ap"
    curve_examples: int | None = 1000
    learned: str | None = None

    def __call__(
        self, logits: Tensor, finite: Tensor, targets: Tensor, features: Features
    ) -> dict[str, Tensor]:
        objects, real = targets[..., :-1], targets[..., -1] > 0.5
        K = len(logits)
        ranked = rank(
            logits[..., :-1],
            objects.expand(K, *objects.shape),
            features,
            logits[..., -1],
            [limit for _, limit in self.limits],
            "picture",
            target_valid=real.expand(K, *real.shape),
        )
        values, counts = precision_of_sets(ranked)
        values = values.float().masked_fill(~finite.reshape(-1, 1), 0.0)
        values = values.masked_fill(~counts.unsqueeze(-1), math.nan).unflatten(0, finite.shape)
        names = [name for name, _ in self.limits]
        return dict(zip(names, values.unbind(-1), strict=True))  # [K, s] each

    def total(self, values: Tensor) -> Tensor:
        return values.nanmean(dim=-1)

    def to(self, device: torch.device) -> PicturePrecision:
        return self
