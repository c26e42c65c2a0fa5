"""The patch autoencoder of a data set: trained once, then kept beside the pictures.

Legend: B patches.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from setwise.experiments import checkpoint
from setwise.experiments.config import BlocksData
from setwise.experiments.randomness import random_order
from setwise.experiments.settings import generator_of, settings
from setwise.models import PatchAutoencoder

# Over which share of the training the learning rate falls linearly to zero.
COOLDOWN = 0.5


def patch_autoencoder(
    data: BlocksData, patches: Tensor, folder: Path, device: torch.device
) -> PatchAutoencoder:
    """The one that was trained on these patches before, if there is one; else train and keep it.

    It is on the CPU, in evaluation mode, and takes no gradients.
    """
    path = _path(data, folder)
    if path.exists():
        return _read(data, path)
    model = fit(data, patches, device).cpu()
    checkpoint.write(path, model.state_dict(), {"data": asdict(data)})
    return model.eval().requires_grad_(False)


def require_autoencoder(data: BlocksData, folder: Path, sha256: str | None) -> None:
    """Refuse unless the one with this `weights_sha256` was kept: any other has other features."""
    path = _path(data, folder)
    if not path.exists():
        raise ValueError(
            f"{path}: the patch autoencoder that the network learned with is not there; copy it "
            f"from where the network was trained, or train both anew"
        )
    found = weights_sha256(_read(data, path))
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


def fit(data: BlocksData, patches: Tensor, device: torch.device) -> PatchAutoencoder:
    """Train on patches [B, 3, 32, 32] in [0, 1]; the same seed gives the same network.

    (On CUDA as far as PyTorch's kernels do.)
    """
    if len(patches) < data.patch_batch:
        raise ValueError(
            f"patch_batch: {data.patch_batch} patches are more than the {len(patches)} there are"
        )
    with settings(device, "high"):
        torch.default_generator.manual_seed(data.patch_seed)
        model = PatchAutoencoder(data.patch_channels).to(device).train()
        patches = patches.to(device)
        rate = torch.tensor(data.patch_rate, device=device)
        adam = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
        seed = torch.tensor(data.patch_seed, device=device)
        generator_of(device).manual_seed(data.patch_seed)  # of the noise
        for epoch in range(data.patch_epochs):
            left = 1 - epoch / data.patch_epochs
            rate.fill_(data.patch_rate * min(1.0, left / COOLDOWN))
            order = random_order(len(patches), seed, torch.tensor(epoch, device=device))
            for rows in order.split(data.patch_batch):
                loss = F.binary_cross_entropy(model(patches[rows]), patches[rows])
                adam.zero_grad()
                loss.backward()
                adam.step()
        return model


def _read(data: BlocksData, path: Path) -> PatchAutoencoder:
    model = PatchAutoencoder(data.patch_channels)
    model.load_state_dict(checkpoint.read(path)[0])
    return model.eval().requires_grad_(False)


def _path(data: BlocksData, folder: Path) -> Path:
    return folder / f"patches-{_identity(data)}.safetensors"


def _identity(data: BlocksData) -> str:
    """A short name of everything that decides the network."""
    settled = {name: value for name, value in asdict(data).items() if name.startswith("patch_")}
    settled |= {"sha256": data.sha256, "train": data.train}
    return hashlib.sha256(json.dumps(settled, sort_keys=True).encode()).hexdigest()[:16]
