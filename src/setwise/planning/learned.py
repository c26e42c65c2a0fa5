"""Trained networks as latent spaces to plan in: what ``setwise reproduce --keep`` left on disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from setwise.data.blocksworld import Blocksworld
from setwise.experiments.blocks import archive_of
from setwise.experiments.config import BlocksData, Config, Data, PuzzleData
from setwise.experiments.kept import networks_among
from setwise.experiments.measures import PictureError
from setwise.experiments.reproduce import load_network_and_task
from setwise.experiments.task import DATA, Task
from setwise.models import SetAutoencoder
from setwise.worlds import PicturedBlocksworld, PuzzleWorld, World


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
        raise ValueError(f"{path}: a network of {config.table}, which has no codes of states")
    try:
        world = world_of(config.data, task, data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return LearnedSpace(path, config, model.to(device), world)


def world_of(data: Data, task: Task, folder: Path) -> World:
    """The world whose states a network was trained on; an error where these have no actions."""
    if isinstance(data, BlocksData):
        assert isinstance(task.measure, PictureError)
        return PicturedBlocksworld.of_archive(
            archive_of(data, folder),
            Blocksworld(data.blocks, data.stacks),
            task.targets,
            task.features,
            seed=data.seed,
            paste=task.measure.pictures,
        )
    if isinstance(data, PuzzleData) and data.variable:
        raise ValueError(
            "was trained on states with missing objects, which have no actions; take a network "
            "of table1"
        )
    if isinstance(data, PuzzleData):
        return PuzzleWorld(data.width, data.height)
    raise ValueError(f"was trained on {data.kind}, which have no actions")


def world_kind(data: Data) -> str | None:
    """The kind of world that `world_of` gives, told without opening anything; None for none."""
    if isinstance(data, PuzzleData) and not data.variable:
        return PuzzleWorld.kind
    return PicturedBlocksworld.kind if isinstance(data, BlocksData) else None


def plannable_networks(folders: Iterable[Path]) -> list[tuple[Path, Config]]:
    """Files of networks with codes of states, and their configs, in folders of runs."""
    files = (path for folder in folders for path in folder.glob("*.safetensors"))
    return [(path, config) for path, config in networks_among(files) if world_kind(config.data)]


def choose_network(kind: str, runs: Path) -> Path | None:
    """The kept network of a kind of world to plan with where none is named, if there is one.

    That with the most states; of several, one trained by set cross entropy on targets in random
    order, with the smallest seed.
    """
    networks = plannable_networks(folder for folder in runs.glob("*") if folder.is_dir())
    fitting = [(path, config) for path, config in networks if world_kind(config.data) == kind]
    return min(fitting, key=_preference)[0] if fitting else None


def _preference(network: tuple[Path, Config]) -> tuple[int, bool, bool, int, str]:
    path, config = network
    states = config.data.states  # type: ignore[union-attr]  # those with a world have some
    return -states, config.loss != "SH", not config.shuffle_target, config.seed, str(path)
