"""Trained networks as latent spaces to plan in: what ``setwise reproduce --keep`` left on disk."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from setwise.data.blocksworld import Blocksworld
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments.blocks import archive_of
from setwise.experiments.config import BlocksData, Config, PuzzleData
from setwise.experiments.kept import networks_among
from setwise.experiments.measures import PictureError
from setwise.experiments.reproduce import load_network_and_task
from setwise.experiments.task import DATA, Task
from setwise.models import SetAutoencoder
from setwise.planning.blocks import BlocksDomain
from setwise.planning.domain import Domain
from setwise.planning.puzzle import PuzzleDomain


@dataclass(frozen=True)
class LearnedSpace:
    """A network, and the domain whose states it was trained on."""

    path: Path
    config: Config
    model: SetAutoencoder
    domain: Domain
    # Draws sets of object vectors, where that takes what was learned with them.
    pictures: PictureError | None = None


def open_space(path: Path, data: Path = DATA, device: torch.device | str = "cpu") -> LearnedSpace:
    """The network in a file; data that are files lie in the folder ``data``."""
    config, model, task = load_network_and_task(path, data=data)
    if not isinstance(model, SetAutoencoder):
        raise ValueError(f"{path}: a network of {config.table}, which has no codes of states")
    model = model.to(device)
    if isinstance(config.data, BlocksData):
        domain, pictures = _blocks(config.data, task, archive_of(config.data, data))
        return LearnedSpace(path, config, model, domain, pictures)
    assert isinstance(config.data, PuzzleData)
    if config.data.variable:
        raise ValueError(
            f"{path}: was trained on states with missing objects, which have no actions; "
            f"take a network of table1"
        )
    return LearnedSpace(path, config, model, PuzzleDomain(config.data.width, config.data.height))


def _blocks(data: BlocksData, task: Task, path: Path) -> tuple[BlocksDomain, PictureError]:
    """All states have been drawn, in the order of a sample of all of them."""
    world = Blocksworld(data.blocks, data.stacks)
    if data.states != world.number_of_states:
        raise ValueError(
            f"data: planning needs pictures of all {world.number_of_states} states of {world}, "
            f"the network was trained with {data.states}"
        )
    ranks = world.rank(world.sample(data.states, data.seed))
    _check_order(world, ranks, path)
    vectors = torch.empty_like(task.targets)
    vectors[ranks] = task.targets
    assert isinstance(task.measure, PictureError)
    names = _names(path.parent)
    return BlocksDomain(world, vectors, task.features, names=names), task.measure


def _check_order(world: Blocksworld, ranks: Tensor, path: Path) -> None:
    """Which picture shows which state is not in an archive, but its transitions betray it."""
    claimed = ranks[torch.from_numpy(BlocksworldArchive.read(path).transitions)].unique(dim=0)
    if not claimed.equal(world.transitions().unique(dim=0)):
        raise ValueError(
            f"{path}: its transitions are not those of {world} with the states in the order of the "
            f"config's seed, so that its pictures would be taken for those of other states; draw "
            f"them with setwise data blocksworld"
        )


def _names(folder: Path) -> list[str] | None:
    """What the blocks look like, if the pictures were drawn here."""
    path = folder / "settings.json"
    if not path.exists():
        return None
    blocks = json.loads(path.read_text())["environment"]["blocks"]
    return [f"{block['size']} {block['colour']} {block['shape']}" for block in blocks]


def kept_networks(folders: Iterable[Path]) -> list[tuple[Path, Config]]:
    """Files of networks with codes of states, and their configs, in folders of runs."""
    files = (path for folder in folders for path in folder.glob("*.safetensors"))
    return [
        (path, config)
        for path, config in networks_among(files)
        if isinstance(config.data, BlocksData)
        or (isinstance(config.data, PuzzleData) and not config.data.variable)
    ]


def choose_network(domain: str, runs: Path) -> Path | None:
    """The kept network to plan with where none is named, if there is one.

    For ``puzzle`` the largest board, for ``blocksworld`` the most blocks; of several, one trained
    by set cross entropy on targets in random order, with the smallest seed.
    """
    kind = PuzzleData if domain == "puzzle" else BlocksData
    networks = kept_networks(folder for folder in runs.glob("*") if folder.is_dir())
    fitting = [(path, config) for path, config in networks if isinstance(config.data, kind)]
    return min(fitting, key=_preference)[0] if fitting else None


def _preference(network: tuple[Path, Config]) -> tuple[int, bool, bool, int, str]:
    path, config = network
    data = config.data
    size = data.blocks if isinstance(data, BlocksData) else 0
    size = data.width * data.height if isinstance(data, PuzzleData) else size
    return -size, config.loss != "SH", not config.shuffle_target, config.seed, str(path)
