"""Points in space: clouds on spheres, boxes and rings, from their points to a code and back.

A Deep Sets encoder adds up the points, in whatever order, and the Chamfer distance is the loss. How
far points would have to travel, one to one, is the earth mover's distance.

    python examples/points.py --quick  # some seconds; part of the test suite
    python examples/points.py          # half a CPU minute. This is what it printed:

        earth mover's distance: 0.3159 to what was read, 0.6249 to any other
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

import setwise as sw
from setwise.models import DeepSetsEncoder

POINTS, WIDTH = 48, 128


def clouds(number: int, generator: torch.Generator) -> Tensor:
    """[B, 48, 3] on surfaces of three kinds, stretched at random along each axis."""
    points = torch.randn(3, number, POINTS, 3, generator=generator)
    sphere = normalize(points[0], dim=-1)
    box = points[1] / points[1].abs().amax(-1, keepdim=True)
    ring = normalize(points[2] * torch.tensor([1.0, 1.0, 0.0]), dim=-1)
    which = torch.randint(3, (number,), generator=generator)
    shapes = torch.stack([sphere, box, ring])[which, torch.arange(number)]
    return shapes * (0.5 + torch.rand(number, 1, 3, generator=generator))


def main(arguments: list[str] | None = None) -> tuple[Tensor, Tensor]:
    """Train, and print how far outputs are from their clouds and from others; both are returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps")
    steps = 40 if parser.parse_args(arguments).quick else 1000
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    read = DeepSetsEncoder(3, WIDTH, (WIDTH, WIDTH), (WIDTH,))
    write = [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3 * POINTS)]
    model = nn.Sequential(read, *write, nn.Unflatten(-1, (POINTS, 3)))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(steps):
        cloud = clouds(32, generator)
        optimizer.zero_grad()
        sw.chamfer(model(cloud), cloud).backward()
        optimizer.step()
    cloud = clouds(200, generator)
    with torch.no_grad():
        output = model(cloud)
    near, any_other = (float(sw.earth_movers(output, x)) for x in (cloud, cloud.roll(1, 0)))
    print(f"earth mover's distance: {near:.4f} to what was read, {any_other:.4f} to any other")
    return cloud, output


if __name__ == "__main__":
    main()
