"""Recombined sets on a GPU: those of the CPU, to the bit, and new ones whenever a graph replays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from recombination import CONFIG, CPU, DONORS, ROWS, TASK
from setwise.experiments.cuda_graph import Repeated
from setwise.experiments.ensemble import Batch
from setwise.experiments.recombine import Recombination

CUDA = torch.device("cuda")

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # What other packages warn of on a machine with a GPU is none of our business.
    pytest.mark.filterwarnings("ignore"),
]


def test_the_same_bits_as_on_the_cpu() -> None:
    seeds, epoch = torch.tensor([2]), torch.tensor(3)
    expected = Recombination(TASK, 0.5, DONORS, CPU)(ROWS, seeds, epoch)
    found = Recombination(TASK, 0.5, DONORS, CUDA)(ROWS.cuda(), seeds.cuda(), epoch.cuda())
    assert found.cpu().equal(expected)


def show(batch: Batch, where: Tensor) -> None:
    where.copy_(batch.draw()[0])


def test_a_replayed_step_recombines_anew() -> None:
    task = TASK.to(CUDA)
    batch = Batch([CONFIG], task, Recombination(TASK, 0.5, DONORS, CUDA))
    on_cpu = Batch([CONFIG], TASK, Recombination(TASK, 0.5, DONORS, CPU))
    shown = torch.zeros_like(batch.draw()[0])
    step = Repeated(lambda: show(batch, shown), replayed=True)
    for epoch in range(6):
        for one in (batch, on_cpu):
            one.begin(epoch)
            one.move(1)
        step()
        assert shown.cpu().equal(on_cpu.draw()[0])
