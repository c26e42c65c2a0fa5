"""A network of one's own: a recurrent decoder, one output after the other.

Run ``setwise train own_network.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from setwise.experiments import Config, Experiment, NetworkConfig, Task
from setwise.experiments.recipes import table4


@dataclass(frozen=True)
class RecurrentLearner(NetworkConfig):
    """Is given the same input at every step, and puts out an element at each."""

    kind: ClassVar[str] = "recurrent learner"
    width: int = 32
    dropout: float = 0.1

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        _, size, features = task.targets.shape
        return Recurrent(task.inputs.shape[-1], size, features, self.width, self.dropout)


class Recurrent(nn.Module):
    """[B, inputs] -> [B, size, features]."""

    def __init__(self, inputs: int, size: int, features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.size = size
        self.read, self.write = nn.Linear(inputs, width), nn.Linear(width, features)
        self.step, self.dropout = nn.Linear(width, width), nn.Dropout(dropout)

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        read = self.read(input)
        state, states = read, []
        for _ in range(self.size):
            state = torch.tanh(read + self.step(state))
            states.append(state)
        return self.write(self.dropout(torch.stack(states, dim=-2)))


def config(scenario: str, loss: str, seed: int) -> Config:
    base = table4.quick(scenario, loss, seed)
    return replace(
        base,
        experiment="recurrent",
        data=replace(base.data, train=100, test=20),
        network=RecurrentLearner(),
        schedule=replace(base.schedule, epochs=3, batch=50, evaluations=3),
    )


EXPERIMENT = Experiment(
    name="recurrent",
    title="A recurrent network on rules",
    config=config,
    scenarios=table4.QUICK.scenarios,
    losses=("set_cross_entropy",),
    seeds=2,
    metric="heldout",
)
