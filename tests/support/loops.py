"""One of two processes: training in the loops of others, beside the same training in one.

Every process has its half of each batch; beside it, it trains alone on whole batches, which is what
is expected. All in float64, so that only the order of sums is different.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import setwise as sw
from ranks import run_as_rank
from setwise.models import QueryDecoder, SetPredictor

FEATURES = sw.Features(sw.Categorical(4))
STEPS, SETS, MOST = 4, 6, 3

Batch = tuple[Tensor, Tensor, Tensor]
Backward = Callable[[Tensor], None]


def network() -> SetPredictor:
    torch.manual_seed(0)
    read = nn.Sequential(nn.Linear(4, 2 * 8), nn.Unflatten(-1, (2, 8)))
    return SetPredictor(read, QueryDecoder(8, size=MOST, heads=2, layers=1), FEATURES)


def batches() -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    found = []
    for _ in range(STEPS):
        digits = torch.randint(4, (SETS, MOST), generator=generator)
        valid = torch.arange(MOST) < torch.randint(1, MOST + 1, (SETS, 1), generator=generator)
        bags = one_hot(digits, 4).double() * valid.unsqueeze(-1)
        found.append((bags.sum(-2), bags, valid))
    return found


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    backward: Backward,
    part: slice,
    *,
    together: bool,
) -> tuple[Tensor, float]:
    """The loss of every step on a part of each batch, and a metric over all outputs."""
    losses = []
    metric = sw.metrics.MatchedError(FEATURES, sync_on_compute=together)
    for batch in batches():
        counts, bags, valid = (tensor[part] for tensor in batch)
        elements, presence = model(counts)
        loss = sw.set_likelihood(elements, bags, FEATURES, presence=presence, target_valid=valid)
        optimizer.zero_grad()
        backward(loss)
        optimizer.step()
        losses.append(loss.detach())
        metric.update(elements.detach(), bags, presence=presence.detach(), target_valid=valid)
    return torch.stack(losses), metric.compute().item()


def plain(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), 1e-2)


def with_fsdp() -> tuple[nn.Module, torch.optim.Optimizer, Backward]:
    # Here, as in the others: while tests are collected this file is imported as well.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import DTensor

    model = network()
    fully_shard(model, mesh=init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),)))
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())
    return model, plain(model), torch.Tensor.backward


def with_fabric() -> tuple[nn.Module, torch.optim.Optimizer, Backward]:
    from lightning.fabric import Fabric

    model = network()
    fabric = Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    wrapped, optimizer = fabric.setup(model, plain(model))
    return wrapped, optimizer, fabric.backward


def with_accelerate() -> tuple[nn.Module, torch.optim.Optimizer, Backward]:
    from accelerate import Accelerator

    model = network()
    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == int(os.environ["WORLD_SIZE"])
    wrapped, optimizer = accelerator.prepare(model, plain(model))
    return wrapped, optimizer, accelerator.backward


LOOPS = {"fsdp": with_fsdp, "fabric": with_fabric, "accelerate": with_accelerate}


def work(rank: int, ranks: int) -> dict[str, Any]:
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore")  # those of others
    model = network()
    losses, metric = train(model, plain(model), torch.Tensor.backward, slice(None), together=False)
    found: dict[str, Any] = {"alone": [losses.tolist(), metric]}
    for name, setup in LOOPS.items():
        losses, metric = train(*setup(), slice(rank, None, ranks), together=True)
        torch.distributed.all_reduce(losses)
        found[name] = [(losses / ranks).tolist(), metric]
    return found


if __name__ == "__main__":
    os.environ |= {"LOCAL_RANK": os.environ["RANK"], "LOCAL_WORLD_SIZE": os.environ["WORLD_SIZE"]}
    run_as_rank(work)
