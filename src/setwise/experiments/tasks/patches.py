"""The patch autoencoder of a data set: trained once, then kept beside the pictures.

Legend: B patches.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from setwise.experiments import checkpoint
from setwise.experiments.context import default_generator, training_context
from setwise.experiments.randomness import random_order
from setwise.experiments.weights import load_weights
from setwise.models import PatchAutoencoder

# Over which share of the training the learning rate falls linearly to zero.
COOLDOWN = 0.5


@dataclass(frozen=True)
class PatchTraining:
    """How a patch autoencoder is trained, and on which patches."""

    channels: int
    epochs: int
    batch: int
    rate: float
    seed: int
    # Of the archive of pictures, and how many of its states are trained on.
    sha256: str
    train: int

    def path(self, folder: Path) -> Path:
        """Where the one so trained is kept: by a hash of all that decides it."""
        settled = json.dumps(asdict(self), sort_keys=True).encode()
        return folder / f"patches-{hashlib.sha256(settled).hexdigest()[:16]}.safetensors"


def patch_autoencoder(
    training: PatchTraining, patches: Tensor, folder: Path, device: torch.device
) -> PatchAutoencoder:
    """The one that was trained on these patches before, if there is one; else train and keep it.

    It is on the CPU, in evaluation mode, and takes no gradients.
    """
    path = training.path(folder)
    if path.exists():
        return _read(training, path)
    model = fit(training, patches, device).cpu()
    checkpoint.write(path, model.state_dict(), {"training": asdict(training)})
    return model.eval().requires_grad_(False)


def require_autoencoder(training: PatchTraining, folder: Path, sha256: str | None) -> None:
    """Refuse unless the one with this `weights_sha256` was kept: any other has other features."""
    path = training.path(folder)
    if not path.exists():
        raise ValueError(
            f"{path}: the patch autoencoder that the network learned with is not there; copy it "
            f"from where the network was trained, or train both anew"
        )
    found = weights_sha256(_read(training, path))
    if found != sha256:
        raise ValueError(
            f"{path}: not the patch autoencoder that the network learned with: the SHA-256 of its "
            f"weights is {sha256 or 'not known'}, that of those in the file {found}; copy the "
            f"right one here, or train the network anew"
        )


def weights_sha256(model: PatchAutoencoder) -> str:
    """What tells one trained autoencoder from any other, wherever it is."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(f"{name} {tuple(tensor.shape)} ".encode())
        found.update(tensor.cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def fit(training: PatchTraining, patches: Tensor, device: torch.device) -> PatchAutoencoder:
    """Train on patches [B, 3, 32, 32] in [0, 1]; the same seed gives the same network.

    (On CUDA as far as PyTorch's kernels do.)
    """
    if len(patches) < training.batch:
        raise ValueError(
            f"patch_batch: {training.batch} patches are more than the {len(patches)} there are"
        )
    with training_context(device, "high"):
        torch.default_generator.manual_seed(training.seed)
        model = PatchAutoencoder(training.channels).to(device).train()
        patches = patches.to(device)
        rate = torch.tensor(training.rate, device=device)
        adam = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
        seed = torch.tensor(training.seed, device=device)
        default_generator(device).manual_seed(training.seed)  # of the noise
        for epoch in range(training.epochs):
            left = 1 - epoch / training.epochs
            rate.fill_(training.rate * min(1.0, left / COOLDOWN))
            order = random_order(len(patches), seed, torch.tensor(epoch, device=device))
            for rows in order.split(training.batch):
                loss = F.binary_cross_entropy(model(patches[rows]), patches[rows])
                adam.zero_grad()
                loss.backward()
                adam.step()
        return model


def _read(training: PatchTraining, path: Path) -> PatchAutoencoder:
    model = load_weights(path, lambda: PatchAutoencoder(training.channels))
    assert isinstance(model, PatchAutoencoder)
    return model.requires_grad_(False)
