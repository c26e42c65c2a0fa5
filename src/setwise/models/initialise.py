"""The weights that networks here start from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from setwise.features import Features
from setwise.models.prototypes import as_logits

if TYPE_CHECKING:
    from setwise.models.autoencoder import SetAutoencoder

# Features that hardly vary are not blown up by more than this makes of them.
_LEAST_DEVIATION = 0.02
# Of the output's weights, so that the prototypes are what is put out at first.
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
def start_at_prototypes(
    model: SetAutoencoder, sets: Tensor, prototypes: Tensor, features: Features
) -> None:
    """Let a new autoencoder of sets [S, N, F] begin with what they have in common.

    The first layer takes the average off every feature and divides by its standard deviation.
    Elements that are mostly alike, as grey features are, would else reach the latent variables as
    one large common signal with small differences, and learning what is common would move the
    latent variables of all sets together, far into saturation, before any of them says anything.

    Each output begins at one of the `prototypes` [N, F], whatever the latent variables say, so
    that it stands for the same part of every set from the start. From one and the same average
    element outputs part in any way, one here and another there, and what they have learned does
    not carry over to other sets.
    """
    elements = sets.flatten(0, -2)
    first, last = model.encoder.embed[0], model.decoder.output
    assert isinstance(first, nn.Linear)
    first.weight.div_(elements.std(0).clamp(min=_LEAST_DEVIATION))
    first.bias.copy_(-(first.weight @ elements.mean(0)))
    last.weight.mul_(_QUIET)
    last.bias.copy_(as_logits(prototypes, features).flatten())
