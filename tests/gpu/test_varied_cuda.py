"""Varied scenes on a GPU: those of the CPU, and others whenever a graph replays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from setwise.data.scenes import SCENE
from setwise.experiments.config import Config, Schedule
from setwise.experiments.cuda_graph import Repeated
from setwise.experiments.ensemble import Batch
from setwise.experiments.networks import Predictor
from setwise.experiments.tasks import ScenesData, Task
from setwise.experiments.tasks.varied_scenes import varied_scenes

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # What other packages warn of on a machine with a GPU is none of our business.
    pytest.mark.filterwarnings("ignore"),
]


def show(batch: Batch, pictures: Tensor, targets: Tensor) -> None:
    for where, what in zip((pictures, targets), batch.draw(), strict=True):
        where.copy_(what)


def test_a_replayed_step_varies_anew_and_as_on_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(12, 4, SCENE.width + 1, generator=generator)
    pictures = torch.rand(12, 3, 16, 16, generator=generator)
    task = Task(pictures, targets, 12, SCENE, vary=varied_scenes)
    configs = [
        Config(
            *("varied", "a", "set_cross_entropy", seed, False, True),
            data=ScenesData(varied=True),
            network=Predictor("queries", 5, 8, (4, 4)),
            schedule=Schedule(epochs=1, batch=4),
        )
        for seed in range(2)
    ]
    batch, on_cpu = Batch(configs, task.to(torch.device("cuda"))), Batch(configs, task)
    shown = [torch.zeros_like(part) for part in batch.draw()]
    step = Repeated(lambda: show(batch, *shown), replayed=True)
    for epoch in range(6):
        for one in (batch, on_cpu):
            one.begin(epoch)
            one.move(1)
        step()
        expected, objects = on_cpu.draw()
        assert torch.allclose(shown[0].cpu(), expected, atol=1e-6)
        assert shown[1].cpu().equal(objects)
