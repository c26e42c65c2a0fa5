"""The weights that networks here start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from setwise.features import Features

if TYPE_CHECKING:
    from setwise.models.autoencoder import SetAutoencoder

# Classes and features that never occur keep a finite logit.
_RARE = 1e-3
# Of the output's weights. With none at all, every output of a set would learn the same for ever.
_QUIET = 0.1


def glorot(module: nn.Module) -> None:
    """Glorot's uniform weights and zero biases (Glorot and Bengio, 2010) in every layer.

    PyTorch's own default shrinks the signal in every layer, by about 6 for the variance. After the
    five layers of a set encoder, states would differ far less than the noise of discrete latent
    variables, and a decoder would learn to ignore them.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


@torch.no_grad()
def start_at_mean(model: SetAutoencoder, sets: Tensor, features: Features) -> None:
    """Let a new autoencoder of sets [*, N, F] begin with their average element, read and put out.

    Elements that are mostly alike, as grey features are, reach the latent variables as one large
    common signal with small differences. Learning the average then moves the latent variables of
    all sets together, far into saturation, before any of them says anything. Here the first layer
    takes the average off, and the outputs put it out whatever the latent variables say.
    """
    mean = sets.flatten(0, -2).mean(0)
    first, last = model.encoder.embed[0], model.decoder.output
    assert isinstance(first, nn.Linear)
    first.bias.copy_(-(first.weight @ mean))
    last.weight.mul_(_QUIET)
    last.bias.copy_(features.from_probs(mean.clamp(_RARE, 1 - _RARE)).repeat(model.decoder.size))
