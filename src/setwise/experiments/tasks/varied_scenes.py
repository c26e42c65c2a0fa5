"""Pictures of scenes that differ a little each time a network is trained on them.

Legend: K ensemble members, b pictures of a batch, M places for objects, F features; H, W height and
width in pixels.

Networks come to know twenty thousand pictures by heart. A picture and its mirror image show two
scenes: the camera stands at x = 0, up to a jitter that is as often to the left as to the right, and
looks along y, so that what is mirrored has its x turned and all else is as before; only the lamps
are on the other side. Light that is a little stronger, weaker or coloured, and a little noise,
leave objects what they are. Pictures are never moved: places would blur.
"""

from __future__ import annotations

from torch import Tensor

from setwise.experiments.randomness import Chances

# At most, in pictures from 0 to 1. The nearest of the eight colours, red and brown, are 0.23 apart.
CONTRAST, TINT, BRIGHTNESS, NOISE = 0.08, 0.04, 0.03, 0.02


def varied_scenes(pictures: Tensor, targets: Tensor, chances: Chances) -> tuple[Tensor, Tensor]:
    """Pictures [K, b, 3, H, W] and objects [K, b, M, F + 1], each mirrored by an even chance."""
    mirrored = chances.uniform() < 0.5
    flips = mirrored[:, :, None, None, None]
    pictures = pictures.flip(-1).where(flips, pictures)
    targets = mirrored_objects(targets).where(mirrored[:, :, None, None], targets)
    height, width = pictures.shape[-2:]
    gain = (1 + _up_to(CONTRAST, chances, 1, 1, 1)) * (1 + _up_to(TINT, chances, 3, 1, 1))
    more = _up_to(BRIGHTNESS, chances, 1, 1, 1) + _up_to(NOISE, chances, 1, height, width)
    return (pictures * gain + more).clamp(0, 1), targets


def mirrored_objects(targets: Tensor) -> Tensor:
    """Objects [*, F + 1] on the other side: their x, which y, z and presence follow, is turned."""
    turned = targets.clone()
    turned[..., -4].neg_()
    return turned


def _up_to(most: float, chances: Chances, *shape: int) -> Tensor:
    return (2 * chances.uniform(*shape) - 1) * most
