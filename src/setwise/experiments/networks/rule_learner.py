"""Networks from the head of a clause to the set of its body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from setwise.experiments.networks.network import NetworkConfig
from setwise.experiments.tasks.task import Task
from setwise.models import EquivariantRuleLearner, SetDecoder


@dataclass(frozen=True)
class RuleLearner(NetworkConfig):
    """The fully connected decoder alone; see `setwise.models.SetDecoder`."""

    kind: ClassVar[str] = "rule learner"
    width: int = 400
    hidden_layers: int = 2
    dropout: float = 0.5
    # Outputs beyond the largest set, where outputs say whether they exist.
    surplus: int = 0

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        return Production(
            SetDecoder(
                task.inputs.shape[-1],
                task.outputs(self.surplus),
                task.features,
                self.width,
                self.hidden_layers,
                self.dropout,
                task.presence,
            )
        )

    def model(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, Production)
        return network.decoder


@dataclass(frozen=True)
class EquivariantLearner(NetworkConfig):
    """Treats all constants alike; see `setwise.models.EquivariantRuleLearner`."""

    kind: ClassVar[str] = "equivariant learner"
    width: int = 64
    hidden_layers: int = 2

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        widths = task.features.widths
        if task.reconstructs or len(widths) != 3 or widths[1] != widths[2]:
            raise ValueError("network: an equivariant learner needs rules, which this data lacks")
        predicates, constants, _ = widths
        arguments = (task.inputs.shape[-1] - predicates) // constants
        return Production(
            EquivariantRuleLearner(
                constants,
                arguments,
                task.targets.shape[1],
                predicates,
                self.width,
                self.hidden_layers,
            )
        )

    def model(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, Production)
        return network.decoder


class Production(nn.Module):
    """A decoder from vectors [B, D] to sets; it has no latent variables and no temperature."""

    def __init__(self, decoder: nn.Module) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        logits: Tensor = self.decoder(input)
        return logits
