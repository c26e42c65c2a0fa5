"""The convolutional autoencoder of small pictures: features that stand for a patch of an image.

Legend: B patches, C channels, V = 64 C features; ``*`` any leading dimensions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from setwise.models.deep_sets import check_floats, check_size
from setwise.models.initialise import glorot

SIDE = 32  # pixels of a patch
CODE_SIDE = 8  # and of its code, after halving twice


class PatchAutoencoder(nn.Module):
    """``decode(encode(patches))``: patches [*, 3, 32, 32] in [0, 1] -> the same shape.

    The network of the Set Cross Entropy paper's appendix. The code is 8 x 8 x ``channels``, each
    feature in [0, 1]; in training Gaussian ``noise`` is added to the patches. All convolutions
    are 3 x 3 and keep the size. The last layer is fully connected, from 32 x 32 x ``channels`` to
    the whole patch, and has nearly all of the weights: 50 million by default.

    >>> model = PatchAutoencoder(channels=2)
    >>> features = model.encode(torch.rand(5, 3, 32, 32))
    >>> features.shape, model.decode(features).shape
    (torch.Size([5, 128]), torch.Size([5, 3, 32, 32]))
    """

    def __init__(self, channels: int = 16, noise: float = 0.1) -> None:
        super().__init__()
        check_size("channels", channels)
        if isinstance(noise, bool) or not isinstance(noise, int | float) or noise < 0:
            raise ValueError(f"noise: expected a number that is not negative, got {noise!r}")
        self.channels, self.noise = channels, noise
        self.features = CODE_SIDE**2 * channels
        self.encoder = nn.Sequential(
            _convolution(3, channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            _convolution(channels, channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            _convolution(channels, channels),
            nn.Sigmoid(),
        )
        self.decoder = nn.Sequential(
            _convolution(channels, channels),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            _convolution(channels, channels),
            nn.ReLU(),
            nn.Upsample(scale_factor=2),
            _convolution(channels, channels),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(SIDE**2 * channels, 3 * SIDE**2),
            nn.Sigmoid(),
        )
        glorot(self)

    def forward(self, patches: Tensor) -> Tensor:
        return self.decode(self.encode(patches))

    def encode(self, patches: Tensor) -> Tensor:
        """[*, 3, 32, 32] -> [*, V]; with noise in training."""
        check_floats("patches", patches, "[*, 3, 32, 32]", 3, SIDE)
        if patches.shape[-3:] != (3, SIDE, SIDE):
            raise ValueError(
                f"patches: expected shape [*, 3, {SIDE}, {SIDE}], got {tuple(patches.shape)}"
            )
        lead = patches.shape[:-3]
        flat = patches.reshape(-1, 3, SIDE, SIDE)
        if self.training and self.noise:
            flat = flat + self.noise * torch.randn_like(flat)
        return self.encoder(flat).reshape(*lead, self.features)

    def decode(self, features: Tensor) -> Tensor:
        """[*, V] -> [*, 3, 32, 32]."""
        check_floats("features", features, "[*, features]", 1, self.features)
        lead = features.shape[:-1]
        code = features.reshape(-1, self.channels, CODE_SIDE, CODE_SIDE)
        return self.decoder(code).reshape(*lead, 3, SIDE, SIDE)


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel_size=3, padding=1)
