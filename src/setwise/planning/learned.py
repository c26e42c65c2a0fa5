"""Trained networks as latent spaces to plan in: what ``--keep`` left on disk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from setwise.experiments.config import Config
from setwise.experiments.records import SCHEMA
from setwise.experiments.saved_networks import (
    first_that_opens,
    load_network_and_task,
    networks_among,
)
from setwise.experiments.tasks.task import DATA
from setwise.losses.table import LOSSES
from setwise.planning.latent import Coder
from setwise.worlds import World


@dataclass(frozen=True)
class LearnedSpace:
    """A network, and the world whose states it was trained on."""

    kind: ClassVar[str] = "network"
    path: Path
    config: Config
    model: Coder
    world: World

    @property
    def said(self) -> str:
        """What is planned with, in a line."""
        config, symbol = self.config, LOSSES[self.config.loss].symbol
        return f"{symbol}, seed {config.seed}, scenario {config.scenario} of {config.experiment}"

    def as_dict(self) -> dict[str, Any]:
        """What the record of a plan says of it."""
        return {
            "schema": SCHEMA,
            "file": self.path.name,
            "experiment": self.config.experiment,
            "scenario": self.config.scenario,
            "loss": self.config.loss,
            "seed": self.config.seed,
        }


def open_space(path: Path, data: Path = DATA, device: torch.device | str = "cpu") -> LearnedSpace:
    """The network in a file; data that are files lie in the folder ``data``."""
    config, model, task = load_network_and_task(path, data=data)
    if not isinstance(model, Coder):
        raise ValueError(f"{path}: a network of {config.experiment}, which has no codes of states")
    try:
        world = config.data.world(task, data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return LearnedSpace(path, config, model.to(device), world)


def plannable_networks(folders: Iterable[Path]) -> list[tuple[Path, Config]]:
    """Files of networks with codes of states, and their configs, in folders of runs."""
    files = (path for folder in folders for path in folder.glob("*.safetensors"))
    return [(path, config) for path, config in networks_among(files) if config.data.world_kind]


def choose_space(
    kind: str, runs: Path, data: Path = DATA, also: Sequence[Path] = ()
) -> LearnedSpace | None:
    """The kept network of a kind of world to plan with where none is named, if there is one.

    The first of those of `choose_network` that can be opened; ``also`` in these folders.
    """
    return first_that_opens(_fitting(kind, runs, also), lambda path: open_space(path, data))


def choose_network(kind: str, runs: Path) -> Path | None:
    """The file of that network, if it is whole.

    That which learned from the most states, as far as its data tell; of several, one trained by set
    cross entropy on targets in random order, with the smallest seed.
    """
    return next(iter(_fitting(kind, runs)), None)


def _fitting(kind: str, runs: Path, also: Sequence[Path] = ()) -> list[Path]:
    """The files of networks of a kind of world, the best first."""
    folders = (*(folder for folder in runs.glob("*") if folder.is_dir()), *also)
    networks = plannable_networks(folders)
    fitting = [(path, config) for path, config in networks if config.data.world_kind == kind]
    return [path for path, _ in sorted(fitting, key=_preference)]


def _preference(network: tuple[Path, Config]) -> tuple[int, bool, bool, int, str]:
    path, config = network
    return (
        -getattr(config.data, "states", 0),
        config.loss != "set_cross_entropy",
        not config.shuffle_target,
        config.seed,
        str(path),
    )
