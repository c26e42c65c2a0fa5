"""Trained networks as latent spaces to plan in: what ``setwise reproduce --keep`` left on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from setwise.experiments.config import Config
from setwise.experiments.saved_networks import load_network_and_task, networks_among
from setwise.experiments.tasks.task import DATA
from setwise.models import SetAutoencoder
from setwise.worlds import World


@dataclass(frozen=True)
class LearnedSpace:
    """A network, and the world whose states it was trained on."""

    path: Path
    config: Config
    model: SetAutoencoder
    world: World


def open_space(path: Path, data: Path = DATA, device: torch.device | str = "cpu") -> LearnedSpace:
    """The network in a file; data that are files lie in the folder ``data``."""
    config, model, task = load_network_and_task(path, data=data)
    if not isinstance(model, SetAutoencoder):
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


def choose_network(kind: str, runs: Path) -> Path | None:
    """The kept network of a kind of world to plan with where none is named, if there is one.

    That with the most states; of several, one trained by set cross entropy on targets in random
    order, with the smallest seed.
    """
    networks = plannable_networks(folder for folder in runs.glob("*") if folder.is_dir())
    fitting = [(path, config) for path, config in networks if config.data.world_kind == kind]
    return min(fitting, key=_preference)[0] if fitting else None


def _preference(network: tuple[Path, Config]) -> tuple[int, bool, bool, int, str]:
    path, config = network
    states = config.data.states  # type: ignore[attr-defined]  # those with a world have some
    return (
        -states,
        config.loss != "set_cross_entropy",
        not config.shuffle_target,
        config.seed,
        str(path),
    )
