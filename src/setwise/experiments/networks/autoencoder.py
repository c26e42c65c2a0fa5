"""The set autoencoder of the paper's appendix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from setwise.experiments.networks.network import NetworkConfig
from setwise.experiments.presence import split_presence
from setwise.experiments.tasks.task import Task
from setwise.models import GumbelSoftmax, SetAutoencoder, start_at_prototypes


@dataclass(frozen=True)
class Autoencoder(NetworkConfig):
    """See `setwise.models.SetAutoencoder`."""

    kind: ClassVar[str] = "autoencoder"
    compiled: ClassVar[bool] = True
    order_free: ClassVar[bool] = True
    element_widths: tuple[int, ...] = (1000, 1000)
    widths: tuple[int, ...] = (1000, 1000)
    # Binary Gumbel-softmax variables.
    latent: int = 100
    decoder_width: int = 1000
    dropout: float = 0.5
    # Whether latent variables are sampled in training, or only softened.
    noise: bool = True
    # Begin with typical elements in place of nothing; see `setwise.models.start_at_prototypes`.
    start_at_prototypes: bool = False
    # Outputs beyond the largest set, where outputs say whether they exist.
    surplus: int = 0

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        if not task.reconstructs:
            raise ValueError("network: an autoencoder needs sets to read, which this data lacks")
        autoencoder = SetAutoencoder(
            task.outputs(self.surplus),
            task.features,
            GumbelSoftmax(self.latent, noise=self.noise),
            self.element_widths,
            self.widths,
            self.decoder_width,
            dropout=self.dropout,
            presence=task.presence,
        )
        if self.start_at_prototypes and self.surplus:
            raise ValueError(
                f"start_at_prototypes: there is one for each element of the largest set, and none "
                f"for surplus outputs, got surplus {self.surplus}; leave out one of the two"
            )
        if self.start_at_prototypes and to_train:
            sets, valid = task.trained_on()
            start_at_prototypes(autoencoder, sets, task.features, task.prototypes, valid)
        elements = None if task.elements is None else task.elements.cpu()
        return Reconstruction(autoencoder, elements)

    def model(self, network: nn.Module) -> nn.Module:
        assert isinstance(network, Reconstruction)
        return network.autoencoder


class Reconstruction(nn.Module):
    """A set autoencoder that reads counts [B, U] of known elements, or sets [B, N, F].

    Of sets with presence, [B, N, F + 1], it reads the elements that exist.
    """

    def __init__(self, autoencoder: SetAutoencoder, elements: Tensor | None) -> None:
        super().__init__()
        self.autoencoder = autoencoder
        self.register_buffer("elements", elements, persistent=False)
        self.elements: Tensor | None

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        if input.dim() == 2:
            assert self.elements is not None
            return self.autoencoder.forward_counts(input, self.elements, temperature)
        elements, exists = split_presence(input, self.autoencoder.encoder.features)
        return self.autoencoder(elements, temperature, exists if exists is None else exists > 0)
