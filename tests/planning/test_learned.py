"""Which kept network is planned with, and what a network of one's own needs to be planned with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from oracle import Oracle
from setwise.experiments import checkpoint
from setwise.experiments.config import Config
from setwise.experiments.networks import NetworkConfig
from setwise.experiments.records import SCHEMA
from setwise.experiments.saved_networks import network_path
from setwise.experiments.tasks import DATA, DataConfig, PuzzleData, RulesData, Task
from setwise.experiments.tasks.task import CPU
from setwise.experiments.train import build_network
from setwise.planning import LatentPlanner
from setwise.planning.learned import choose_network, open_space
from setwise.worlds import PuzzleWorld, World
from tiny_experiments import puzzle_config

WORLD = PuzzleWorld(2, 2)


class Lookup(nn.Module):
    """The codes of an oracle, which learns nothing."""

    def __init__(self, *, decodes: bool) -> None:
        super().__init__()
        oracle = Oracle(WORLD, 5)
        self.register_buffer("unused", torch.zeros(1))
        self.encode = oracle.encode
        if decodes:
            self.decode = oracle.decode

    def forward(self, input: Tensor, temperature: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class LookupConfig(NetworkConfig):
    kind: ClassVar[str] = "lookup of test_learned"
    decodes: bool = True

    def build(self, task: Task, *, to_train: bool = True) -> nn.Module:
        return Lookup(decodes=self.decodes)


@dataclass(frozen=True)
class Untold(DataConfig):
    """States of a world, without a number of them."""

    kind: ClassVar[str] = "untold of test_learned"

    def load(self, folder: Path = DATA, device: torch.device = CPU) -> Task:
        return PuzzleData(width=2, height=2, states=24, train=24).load()

    @property
    def world_kind(self) -> str:
        return WORLD.kind

    def world(self, task: Task, folder: Path = DATA) -> World:
        return WORLD


def keep(config: Config, runs: Path) -> Path:
    """A network that has learned nothing yet."""
    path = network_path(runs, config)
    weights = build_network(config, config.data.load()).state_dict()
    checkpoint.write(path, weights, {"schema": SCHEMA, "config": config.as_dict()})
    return path


def test_the_one_to_plan_with(tmp_path: Path) -> None:
    """Each is better than those before it; what has no world is none."""
    rules = RulesData(train=20, test=10)
    assert choose_network("puzzle", tmp_path) is None
    keep(replace(puzzle_config(), data=rules, network=LookupConfig()), tmp_path)
    assert choose_network("puzzle", tmp_path) is None
    better = [
        replace(puzzle_config("1", "A1H", 4), data=Untold()),
        puzzle_config("1", "A1H", 4),
        puzzle_config("1", "A1H", 3),
        puzzle_config("4", "A1H", 5),
        puzzle_config("1", "SH", 6),
        puzzle_config("3", "SH", 7),
        replace(
            puzzle_config("1", "H", 8), data=PuzzleData(width=3, height=2, states=25, train=20)
        ),
    ]
    for config in better:
        path = keep(config, tmp_path)
        assert choose_network("puzzle", tmp_path) == path
    assert choose_network("blocksworld", tmp_path) is None


def test_a_network_and_data_of_ones_own(tmp_path: Path) -> None:
    config = replace(puzzle_config(), data=Untold(), network=LookupConfig())
    space = open_space(keep(config, tmp_path))
    assert (space.world, space.config) == (WORLD, config)
    with LatentPlanner(space.model, space.world) as planner:
        assert planner.health().healthy


def test_one_that_cannot_be_planned_with(tmp_path: Path) -> None:
    config = replace(puzzle_config(), data=Untold(), network=LookupConfig(decodes=False))
    path = keep(config, tmp_path)
    with pytest.raises(ValueError, match=rf"{path.name}: a network of tiny, which has no codes"):
        open_space(path)
