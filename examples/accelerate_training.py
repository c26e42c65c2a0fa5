"""Training with Accelerate on any number of processes: losses and metrics as they are.

The network and the data are those of ``torchrun.py`` beside this file, which is the same training
by hand: a network is told how often each digit is in a bag, and puts out the bag. Accelerate
divides the batches and averages the gradients; metrics add up their counts over processes
themselves. It needs ``pip install accelerate``.

    torchrun --nproc-per-node 2 examples/accelerate_training.py --quick  # some seconds
    python examples/accelerate_training.py --quick    # one process, the same numbers
    python examples/accelerate_training.py            # half a CPU minute. This is what it printed:

        loss -0.2454, bags that come out exactly 0.977
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import setwise as sw

sys.path.insert(0, str(Path(__file__).parent))
from torchrun import BATCH, EPOCHS, FEATURES, Bags, network


def train(accelerator: Accelerator, model: nn.Module, bags: Bags, epochs: int) -> list[float]:
    """The loss of every step, over the whole batch."""
    # That of PyTorch for one process: Accelerate divides what it gives.
    sampler = DistributedSampler(bags, 1, 0, drop_last=True)
    loader = DataLoader(bags, BATCH, sampler=sampler, collate_fn=sw.collate_sets)
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    model, optimizer, batches = accelerator.prepare(model, optimizer, loader)
    curve = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for counts, bag, valid in batches:
            elements, presence = model(counts)
            loss = sw.set_likelihood(elements, bag, FEATURES, presence=presence, target_valid=valid)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            curve.append(accelerator.reduce(loss.detach(), "mean").item())
    return curve


@torch.no_grad()
def judge(accelerator: Accelerator, model: nn.Module, bags: Bags) -> float:
    """How many bags come out exactly; every process looks at its part of them."""
    right = sw.metrics.MultisetEquality(FEATURES).to(accelerator.device)
    with accelerator.split_between_processes(list(range(len(bags)))) as part:
        unseen = [bags[index] for index in part]
    for batch in DataLoader(unseen, BATCH, collate_fn=sw.collate_sets):
        counts, bag, valid = (tensor.to(accelerator.device) for tensor in batch)
        elements, presence = model(counts)
        right.update(elements, bag, presence=presence, target_valid=valid)
    return right.compute().item()  # over all processes


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train, and print what the network has learned; its losses are returned."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few steps")
    parser.add_argument("--output", type=Path, help="a file for the losses, as JSON")
    options = parser.parse_args(arguments)
    # A batch is that of all processes together, and each has its part.
    divided = DataLoaderConfiguration(split_batches=True)
    accelerator = Accelerator(cpu=True, dataloader_config=divided)
    torch.manual_seed(0)  # the same first weights everywhere
    model = network()
    bags, unseen = (Bags(256 if options.quick else 2048, 0), Bags(301, 1))
    curve = train(accelerator, model, bags, 3 if options.quick else EPOCHS)
    found = {"losses": curve, "right": judge(accelerator, model, unseen)}
    if accelerator.is_main_process:
        print(f"loss {curve[-1]:.4f}, bags that come out exactly {found['right']:.3f}")
        if options.output is not None:
            options.output.write_text(json.dumps(found))
    accelerator.free_memory()  # what it prepared holds on to the group of processes
    accelerator.end_training()
    return found


if __name__ == "__main__":
    main()
