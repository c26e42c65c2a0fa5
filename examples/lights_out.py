"""A planning world of one's own: an autoencoder learns its states as sets, Fast Downward plans.

python examples/lights_out.py  # half a CPU minute. This is what it printed:

    states that come back: 512 of 512, problems solved: 20 of 20
"""

import sys

import torch

import setwise as sw
from setwise.models import GumbelSoftmax, SetAutoencoder, annealed_temperature, start_at_prototypes
from setwise.planning import LatentPlanner, problems_for
from setwise.worlds import World

CELL, X, Y = torch.arange(9), torch.arange(9) % 3, torch.arange(9) // 3
PRESS = ((X[:, None] - X).abs() + (Y[:, None] - Y).abs() <= 1).long()
PLACES = torch.cat([torch.eye(3)[X], torch.eye(3)[Y]], dim=-1)


class Lights(World):
    """Lights Out: a press turns a light and those beside it, each with a column and a row."""

    kind = name = "own-lights"
    features = sw.Features(sw.Categorical(3), sw.Categorical(3), sw.Bernoulli(1))

    def states(self) -> torch.Tensor:
        return torch.arange(512).unsqueeze(-1) >> CELL & 1

    def successors(self, configurations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        after = configurations.unsqueeze(-2) ^ PRESS
        return after, torch.ones_like(after[..., 0], dtype=torch.bool)

    def objects(self, configurations: torch.Tensor) -> torch.Tensor:
        return torch.cat([PLACES.expand(*configurations.shape, 6), configurations[..., None]], -1)


def main(arguments: list[str]) -> None:
    steps, problems = (30, 1) if "--quick" in arguments else (1500, 20)
    torch.manual_seed(0)
    sets = (world := Lights()).objects(Lights().states())
    model = SetAutoencoder(9, world.features, GumbelSoftmax(24), (128,), (128,), 128, dropout=0.0)
    start_at_prototypes(model, sets, world.features)
    optimizer = torch.optim.Adam(model.parameters())
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps)
    for step, batch in enumerate(sets[torch.randint(512, (steps, 64))]):
        output = model(batch, annealed_temperature(step / steps))
        optimizer.zero_grad()
        sw.assignment_cross_entropy(output, batch, world.features).backward()
        optimizer.step()
        rate.step()
    with LatentPlanner(model.eval(), world) as planner:
        found = [planner.solve(p.init, p.goal) for p in problems_for(world, 7, problems, seed=0)]
        back, solved = planner.health().recovered, sum(plan.valid for plan in found)
    print(f"states that come back: {back} of 512, problems solved: {solved} of {problems}")


if __name__ == "__main__":
    main(sys.argv)
