"""Networks that read pictures, for use: from a picture file to the objects of a world.

Legend: N objects, F features; H, W height and width of a picture in pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from setwise.experiments.config import Config
from setwise.experiments.saved_networks import first_that_opens, networks_among, read_config
from setwise.experiments.tasks.read_right import most_present
from setwise.experiments.tasks.reading import ReadingData
from setwise.experiments.train import build_network
from setwise.experiments.weights import load_weights
from setwise.outside import named
from setwise.worlds import World


@dataclass(frozen=True)
class Reader:
    """A trained network, and the data that say what it reads; see `open_reader`."""

    path: Path
    config: Config
    data: ReadingData
    network: nn.Module

    def picture(self, path: Path) -> NDArray[np.uint8]:
        """The picture [H, W, 3] in a PNG file, of the size that the network reads."""
        from setwise.render.files import load_image

        return np.array(load_image(path, self.data.size).convert("RGB"))

    @torch.no_grad()
    def outputs(self, picture: NDArray[np.uint8]) -> Tensor:
        """What the network finds in a picture [H, W, 3]: outputs [N, F], as many as objects."""
        inputs = self.data.inputs(picture[None])
        found = self.network(inputs, torch.tensor(1.0))
        return most_present(found, self.data.blank().targets.shape[1])[0]

    def objects(self, picture: NDArray[np.uint8], world: World) -> Tensor:
        """What a picture [H, W, 3] shows, as objects [N, F] of a world.

        A ValueError says which of them make no legal state together.
        """
        try:
            objects = self.data.objects(self.outputs(picture), picture, world)
            world.configuration_of(objects)
        except ValueError as error:
            raise ValueError(
                f"{self.path} reads no legal state of {world.name} in it: {error}"
            ) from error
        return objects


def open_reader(path: Path) -> Reader:
    """The reader in a file that was kept of a training; its data are not needed."""
    config = read_config(path)
    if not isinstance(config.data, ReadingData):
        raise ValueError(
            f"{path}: a network of {config.experiment}, which reads no pictures of a world"
        )
    with named(path, TypeError, OverflowError):
        blank = config.data.blank()
    network = load_weights(path, lambda: build_network(config, blank, to_train=False))
    return Reader(path, config, config.data, network)


def choose_reader(kind: str, runs: Path) -> Reader | None:
    """Of the readers of a kind of world in a folder of runs, the one that has seen most states.

    Those that cannot be opened are told and left out.
    """
    files = networks_among(runs.glob("*/*.safetensors"))
    fitting = [
        (-config.data.states, config.seed, path)
        for path, config in files
        if isinstance(config.data, ReadingData) and config.data.reads == kind
    ]
    return first_that_opens((path for *_, path in sorted(fitting)), open_reader)
