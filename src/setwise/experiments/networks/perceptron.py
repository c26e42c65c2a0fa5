"""A plain network from vectors, or from sets, to sets whose elements say whether they exist."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from setwise.experiments.networks.network import NetworkConfig
from setwise.experiments.presence import split_presence
from setwise.experiments.tasks.task import Task
from setwise.models import DeepSetsEncoder


@dataclass(frozen=True)
class Perceptron(NetworkConfig):
    """Hidden layers with layer normalisation; sets are read by a Deep Sets encoder first.

    What batch normalisation adds to numbers, by the batch that they happen to be in, is more than
    their precision: a `RuleLearner` is for classes.
    """

    kind: ClassVar[str] = "perceptron"
    width: int = 256
    hidden_layers: int = 2

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        if task.inputs.dim() != 2 and not task.reads_sets:
            raise ValueError(
                "network: a perceptron needs vectors or sets to read, which this data lacks"
            )
        encoder = None
        if task.reads_sets:
            encoder = DeepSetsEncoder(task.features, self.width, (self.width,) * 2, ())
        inputs = task.inputs.shape[-1] if encoder is None else self.width
        _, size, features = task.targets.shape
        layers: list[nn.Module] = []
        for layer in range(self.hidden_layers):
            read = self.width if layer else inputs
            layers += [nn.Linear(read, self.width), nn.LayerNorm(self.width), nn.ReLU()]
        layers += [nn.Linear(self.width, size * features), nn.Unflatten(-1, (size, features))]
        return _Layers(encoder, nn.Sequential(*layers))


class _Layers(nn.Module):
    """Vectors [B, D], or sets [B, N, F] or with presence [B, N, F + 1], to sets of that form."""

    def __init__(self, encoder: DeepSetsEncoder | None, layers: nn.Sequential) -> None:
        super().__init__()
        self.encoder, self.layers = encoder, layers

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        if self.encoder is not None:
            elements, exists = split_presence(input, self.encoder.features)
            input = self.encoder(elements, None if exists is None else exists > 0)
        output: Tensor = self.layers(input)
        return output
