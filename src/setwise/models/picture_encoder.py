"""From a picture to a memory that decoders read: a vector for each region, which knows its place.

Legend: C channels, H x W pixels, T regions, D = ``outputs``; ``*`` any leading dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from setwise.models.attention import FeedForward
from setwise.models.deep_sets import check_floats, check_size
from setwise.models.initialise import glorot

# Waves of a place along each side: from half a period over the whole side to four of them.
_WAVES = 4


class PictureEncoder(nn.Module):
    """Pictures [*, C, H, W] -> memories [*, T, D], T = H W / 4^(number of ``widths``).

    3 x 3 convolutions of these widths, each of which halves the sides and is followed by ``blocks``
    residual ones (He et al., 2016), and fully connected layers for each region. Regions are read in
    any order later; each is told its place, as waves of several lengths (Vaswani et al., 2017).
    Pictures of any size will do, if both sides can be halved so often.

    >>> encoder = PictureEncoder(outputs=16, widths=(8, 8))
    >>> encoder(torch.rand(5, 3, 32, 32)).shape
    torch.Size([5, 64, 16])
    """

    def __init__(
        self,
        outputs: int,
        widths: Sequence[int] = (32, 64, 64),
        channels: int = 3,
        blocks: int = 0,
    ) -> None:
        super().__init__()
        check_size("outputs", outputs)
        check_size("channels", channels)
        check_size("blocks", blocks, least=0)
        self.channels, self.outputs, self.shrinks = channels, outputs, 2 ** len(widths)
        layers: list[nn.Module] = []
        for width in widths:
            check_size("widths", width)
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.ReLU()]
            layers += [ResidualBlock(width) for _ in range(blocks)]
            channels = width
        self.eyes = nn.Sequential(*layers)
        # What is seen is small at first, and would be lost beside the place.
        self.read = nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, outputs))
        self.place = nn.Linear(4 * _WAVES, outputs)
        self.mind = nn.Sequential(FeedForward(outputs), nn.LayerNorm(outputs))
        glorot(self)
        for layer in layers:
            if isinstance(layer, ResidualBlock):
                layer.start_with_nothing()

    def forward(self, pictures: Tensor) -> Tensor:
        check_floats("pictures", pictures, "[*, C, H, W]", 3)
        *lead, channels, height, width = pictures.shape
        whole = all(side and side % self.shrinks == 0 for side in (height, width))
        if channels != self.channels or not whole:
            raise ValueError(
                f"pictures: expected shape [*, {self.channels}, H, W], H and W multiples of "
                f"{self.shrinks}, got {tuple(pictures.shape)}"
            )
        seen = self.eyes(pictures.reshape(-1, channels, height, width))
        memory = self.read(seen.flatten(-2).mT) + self.place(_places(seen))
        return self.mind(memory).reshape(*lead, *memory.shape[-2:])


class ResidualBlock(nn.Module):
    """A norm and two convolutions, added to what they read: [B, D, H, W] -> [B, D, H, W]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Of each place alone. A GroupNorm asks how its input lies, which ensembles cannot tell.
        self.norm = nn.LayerNorm(width)
        self.layers = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
        )

    def start_with_nothing(self) -> None:
        """Add zeros at first, so that a network starts as one without the block."""
        last = self.layers[-1]
        assert isinstance(last, nn.Conv2d)
        nn.init.zeros_(last.weight)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.layers(self.norm(x.movedim(-3, -1)).movedim(-1, -3))
        return x + added


def _places(seen: Tensor) -> Tensor:
    """Waves [T, 4 * _WAVES] of the places of the regions of maps [B, D, H, W]."""
    height, width = seen.shape[-2:]
    frequencies = math.pi * 2.0 ** torch.arange(_WAVES, device=seen.device, dtype=seen.dtype)
    sides = []
    for regions in (height, width):
        middles = (torch.arange(regions, device=seen.device, dtype=seen.dtype) + 0.5) / regions
        angles = middles.unsqueeze(-1) * frequencies
        sides.append(torch.cat([angles.cos(), angles.sin()], dim=-1))
    down = sides[0].unsqueeze(1).expand(height, width, -1)
    across = sides[1].unsqueeze(0).expand(height, width, -1)
    return torch.cat([down, across], dim=-1).flatten(0, 1)
