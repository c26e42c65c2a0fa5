"""A file of pictures: Blocksworld states, and what networks made of them.

Legend: R networks, S states; H, W height and width in pixels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from setwise.experiments.config import Config, config_from
from setwise.experiments.records import upgraded_config
from setwise.files import atomic_write
from setwise.outside import named, read_arrays


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
        names = ("configs", "states", "inputs", "outputs", "environment", "finished")
        found = read_arrays(path, names)
        with named(path, TypeError, RecursionError):
            configs, environment = (json.loads(_text(found, name)) for name in names[::4])
            if not isinstance(configs, list) or not isinstance(environment, dict):
                raise ValueError("configs, environment: expected a list and an object")
            reconstructions = Reconstructions(
                tuple(config_from(_current(config)) for config in configs),
                tuple(found["states"].tolist()),
                found["inputs"],
                found["outputs"],
                environment,
                _text(found, "finished"),
            )
            reconstructions._check()
            return reconstructions

    def _check(self) -> None:
        """A file may come from elsewhere, with anything in it."""
        S, R, picture = len(self.states), len(self.configs), self.inputs.shape[1:]
        shapes = (S, *picture), (R, S, *picture)
        uint8 = self.inputs.dtype == self.outputs.dtype == np.uint8
        fits = (self.inputs.shape, self.outputs.shape) == shapes and picture[2:] == (3,)
        if not (uint8 and fits and all(isinstance(state, int) for state in self.states)):
            raise ValueError(
                f"expected inputs uint8 [{S}, H, W, 3] and outputs uint8 [{R}, {S}, H, W, 3], got "
                f"{self.inputs.dtype} {self.inputs.shape} and "
                f"{self.outputs.dtype} {self.outputs.shape}"
            )


def _text(arrays: Mapping[str, NDArray[Any]], name: str) -> str:
    if arrays[name].ndim or arrays[name].dtype.kind != "U":
        raise ValueError(f"{name}: expected a text, got {arrays[name].dtype} {arrays[name].shape}")
    text: str = arrays[name].item()
    return text


def _current(saved: dict[str, Any]) -> dict[str, Any]:
    """Files of the first release name the table of a config."""
    if not isinstance(saved, dict):
        raise ValueError(f"configs: expected objects with fields, got {saved!r:.60}")
    return upgraded_config(saved) if "table" in saved else saved
