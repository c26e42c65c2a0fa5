"""Small networks in double precision, and what tests ask of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from setwise.models import (
    BinaryConcrete,
    DeepSetsEncoder,
    GumbelSoftmax,
    SetAutoencoder,
)

TIGHT = {"rtol": 1e-11, "atol": 1e-12}
Latent = GumbelSoftmax | BinaryConcrete


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def small_encoder(features: int = 4, outputs: int = 3) -> DeepSetsEncoder:
    torch.manual_seed(0)
    return DeepSetsEncoder(features, outputs, element_widths=(9, 7), widths=(8, 6)).double()


def small_autoencoder(
    latent: Latent | None = None, dropout: float = 0.5, seed: int = 0
) -> SetAutoencoder:
    torch.manual_seed(seed)
    latent = GumbelSoftmax(5) if latent is None else latent
    return SetAutoencoder(3, 4, latent, (9, 7), (8, 6), 10, 2, dropout).double()


def gradients(module: nn.Module, output: Tensor) -> list[Tensor]:
    weight = torch.randn(output.shape, generator=seeded(9), dtype=output.dtype)
    return list(torch.autograd.grad((output * weight).sum(), list(module.parameters())))


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}
