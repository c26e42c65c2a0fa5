"""Detection: from pictures to the sets of objects that they show, of any number, without boxes.

Each picture shows one to six sprites: a shape, a colour, a size and a place. A network puts out an
element for each of 16 regions, with a logit that says whether it exists, and learns by the
likelihood of the set: nobody tells it which output is for which object. Average precision asks for
the right shape, colour and size, at a distance below 0.1 (pictures span 2), or anywhere.

    python examples/detect.py --quick  # some seconds; part of the test suite
    python examples/detect.py          # two CPU minutes. This is what it printed:

        average precision 0.966 within 0.1, 0.970 anywhere
"""

from __future__ import annotations

import argparse
import math

import torch

import setwise as sw
from setwise.data.sprites import SPRITE, sprites
from setwise.models import PictureEncoder, RegionDecoder, SetPredictor

SCENES = {"side": 32, "least": 1, "most": 6}
STEPS = 1750


def train(steps: int, seed: int = 0) -> SetPredictor:
    """A network that has seen ``steps`` batches of new pictures."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = SetPredictor(PictureEncoder(64), RegionDecoder(64), SPRITE)
    optimizer = torch.optim.Adam(model.parameters())
    rate = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 3e-3, total_steps=steps, pct_start=0.1, cycle_momentum=False
    )
    for step in range(steps):
        # Places count little at first, so that outputs begin with what they can see.
        place = sw.Gaussian(2, scale=0.4 * 0.25 ** (step / steps))
        features = sw.Features(*SPRITE.blocks[:-1], place)
        pictures, objects, valid = sprites(32, generator, **SCENES)
        elements, presence = model(pictures)
        loss = sw.set_likelihood(elements, objects, features, presence=presence, target_valid=valid)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    return model.eval()


@torch.no_grad()
def judge(model: SetPredictor, seed: int = 1) -> dict[str, float]:
    """Average precision on a thousand pictures that it has not seen."""
    pictures, objects, valid = sprites(1000, torch.Generator().manual_seed(seed), **SCENES)
    elements, presence = model(pictures)
    masks = {"presence": presence, "target_valid": valid}
    limits = (0.1, math.inf)
    found = sw.metrics.average_precision(elements, objects, SPRITE, within=limits, **masks)
    return dict(zip(("within 0.1", "anywhere"), found.tolist(), strict=True))


def main(arguments: list[str] | None = None) -> dict[str, float]:
    """Train, and print the average precision, which is returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    found = judge(train(40 if options.quick else STEPS, options.seed), options.seed + 1)
    print("average precision", ", ".join(f"{value:.3f} {name}" for name, value in found.items()))
    return found


if __name__ == "__main__":
    main()
