"""Training on any number of processes in plain PyTorch, as torchrun starts them.

A network is told how often each digit is in a bag, and puts out the bag. Every process has its part
of each batch, DistributedDataParallel averages gradients, and metrics add up their counts over all
processes: losses and metrics are called as in one process, and nothing is scaled. Whatever the
number of processes, batches are the same, and so is the training, to rounding.

    torchrun --nproc-per-node 2 examples/torchrun.py --quick  # two processes, some seconds
    python examples/torchrun.py --quick    # one process, the same numbers
    python examples/torchrun.py            # half a CPU minute. This is what it printed:

        loss -0.2454, bags that come out exactly 0.977
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import setwise as sw
from setwise.models import QueryDecoder, SetPredictor

DIGITS, MOST, WIDTH = 6, 5, 32
FEATURES = sw.Features(sw.Categorical(DIGITS))
BATCH, EPOCHS = 64, 20  # sets in a batch of all processes together


class Bags(Dataset[tuple[Tensor, Tensor]]):
    """How often each digit is in a bag [DIGITS], and the bag [n, DIGITS], of one to MOST digits."""

    def __init__(self, bags: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        sizes = torch.randint(1, MOST + 1, (bags,), generator=generator).tolist()
        numbers = (torch.randint(DIGITS, (size,), generator=generator) for size in sizes)
        self.bags = [one_hot(digits, DIGITS).float() for digits in numbers]

    def __len__(self) -> int:
        return len(self.bags)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.bags[index].sum(0), self.bags[index]


def network() -> SetPredictor:
    read = nn.Sequential(nn.Linear(DIGITS, 4 * WIDTH), nn.ReLU(), nn.Unflatten(-1, (4, WIDTH)))
    return SetPredictor(read, QueryDecoder(WIDTH, size=MOST + 1), FEATURES)


def train(model: nn.Module, bags: Bags, epochs: int, rank: int, ranks: int) -> list[float]:
    """The loss of every step, over the whole batch."""
    sampler = DistributedSampler(bags, ranks, rank, drop_last=True)
    batches = DataLoader(bags, BATCH // ranks, sampler=sampler, collate_fn=sw.collate_sets)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    curve = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for counts, bag, valid in batches:
            elements, presence = model(counts)
            loss = sw.set_likelihood(elements, bag, FEATURES, presence=presence, target_valid=valid)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            whole = loss.detach() / ranks
            if ranks > 1:
                dist.all_reduce(whole)
            curve.append(whole.item())
    return curve


@torch.no_grad()
def judge(model: nn.Module, bags: Bags, rank: int, ranks: int) -> float:
    """How many bags come out exactly; every process looks at its part of them."""
    right = sw.metrics.MultisetEquality(FEATURES)
    part = [bags[index] for index in range(rank, len(bags), ranks)]
    for counts, bag, valid in DataLoader(part, BATCH, collate_fn=sw.collate_sets):
        elements, presence = model(counts)
        right.update(elements, bag, presence=presence, target_valid=valid)
    return right.compute().item()  # over all processes


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train, and print what the network has learned; its losses are returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--output", type=Path, help="a file for the losses, as JSON")
    options = parser.parse_args(arguments)
    if together := "RANK" in os.environ:  # torchrun says who we are
        dist.init_process_group("gloo")
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    torch.manual_seed(0)  # the same first weights everywhere
    model: nn.Module = network()
    if together:
        model = DistributedDataParallel(model)
    bags, unseen = (Bags(256 if options.quick else 2048, 0), Bags(301, 1))
    curve = train(model, bags, 3 if options.quick else EPOCHS, rank, ranks)
    found = {"losses": curve, "right": judge(model, unseen, rank, ranks)}
    if rank == 0:
        print(f"loss {curve[-1]:.4f}, bags that come out exactly {found['right']:.3f}")
        if options.output is not None:
            options.output.write_text(json.dumps(found))
    if together:
        dist.destroy_process_group()
    return found


if __name__ == "__main__":
    main()
