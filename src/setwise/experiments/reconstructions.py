"""A file of pictures: Blocksworld states, and what networks made of them.

Legend: R networks, S states; H, W height and width in pixels.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from setwise.experiments.config import Config, config_from
from setwise.experiments.records import upgraded_config
from setwise.files import atomic_write


@dataclass(frozen=True)
class Reconstructions:
    """States as the networks see them, and what comes out of each network."""

    configs: tuple[Config, ...]  # R, of the networks
    states: tuple[int, ...]  # S, their places in the data
    inputs: NDArray[np.uint8]  # [S, H, W, 3]
    outputs: NDArray[np.uint8]  # [R, S, H, W, 3]
    environment: dict[str, Any]  # in which the networks were asked
    finished: str

    def write(self, path: Path) -> None:
        """One ``.npz`` file, which appears whole."""
        with atomic_write(path) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(
                file,
                configs=np.array(json.dumps([config.as_dict() for config in self.configs])),
                states=np.array(self.states),
                inputs=self.inputs,
                outputs=self.outputs,
                environment=np.array(json.dumps(self.environment)),
                finished=np.array(self.finished),
            )

    @staticmethod
    def read(path: Path) -> Reconstructions:
        """What `write` wrote."""
        # Opened here: NumPy leaves a file open that is no archive.
        with path.open("rb") as opened, np.load(opened) as file:
            saved: list[dict[str, Any]] = json.loads(file["configs"].item())
            return Reconstructions(
                tuple(config_from(_current(config)) for config in saved),
                tuple(file["states"].tolist()),
                file["inputs"],
                file["outputs"],
                json.loads(file["environment"].item()),
                file["finished"].item(),
            )


def _current(saved: dict[str, Any]) -> dict[str, Any]:
    """Files of the first release name the table of a config."""
    return upgraded_config(saved) if "table" in saved else saved
