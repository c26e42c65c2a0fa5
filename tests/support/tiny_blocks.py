"""A tiny Table 3: an archive of blocks of one colour, and configs that train on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments.config import Config, Schedule
from setwise.experiments.networks import Autoencoder
from setwise.experiments.tasks import BlocksData
from setwise.losses.table import find_loss

CPU = torch.device("cpu")
DATA = BlocksData(
    blocks=3,
    states=24,
    width=60,
    height=40,
    train=20,
    patch_channels=1,
    patch_epochs=2,
    patch_batch=15,
)
COLOURS = torch.tensor([[200, 40, 40], [40, 200, 40], [40, 40, 200]], dtype=torch.uint8)


def an_archive(seed: int = 0, states: int = 24) -> BlocksworldArchive:
    """Three blocks of one colour each, two shades of it, at random places."""
    bits = np.random.Generator(np.random.PCG64(seed))
    shade = bits.integers(0, 2, (states, 3, 1, 1, 1))
    colours = COLOURS.numpy()[None, :, None, None, :]
    seen = np.broadcast_to(colours - 30 * shade, (states, 3, 32, 32, 3)).astype(np.uint8)
    corner = bits.integers(0, 6, (states, 3, 2)) * 5
    boxes = np.concatenate([corner, corner + 10], axis=-1).astype(np.uint16)
    return BlocksworldArchive(seen, boxes, (40, 60), np.zeros((0, 2), dtype=np.int64))


def config(
    data: BlocksData, scenario: str = "4", loss: str = "SH", seed: int = 0, **schedule: Any
) -> Config:
    options = {"epochs": 2, "batch": 10, "learning_rate": 1e-2, "evaluations": 2}
    return Config(
        experiment="table3-tiny",
        scenario=scenario,
        loss=find_loss(loss).name,
        seed=seed,
        shuffle_input=scenario in ("2", "4"),
        shuffle_target=scenario in ("3", "4"),
        data=data,
        network=Autoencoder(
            element_widths=(64, 64), widths=(64,), latent=32, decoder_width=64, dropout=0.0
        ),
        schedule=Schedule(**(options | schedule)),
    )


def some_patches(count: int) -> Tensor:
    shade = torch.rand(count, 3, 1, 1, generator=torch.Generator().manual_seed(0))
    return shade.expand(count, 3, 32, 32)
