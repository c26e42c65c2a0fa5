"""The data of experiments: of which world they are, and states of any world as data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from painted_blocks import DATA as BLOCKS
from painted_blocks import WORLD as BLOCKSWORLD
from painted_blocks import painted
from setwise.data import Schema
from setwise.experiments.config import config_from
from setwise.experiments.run import train, unfinished
from setwise.experiments.saved_networks import network_path
from setwise.experiments.tasks import (
    TASKS,
    BlockPicturesData,
    BlocksData,
    DataConfig,
    FactsData,
    MultisetData,
    NumberingData,
    PuzzleData,
    PuzzlePicturesData,
    RowsData,
    RulesData,
    ScenesData,
    SpritesData,
    TracedBlocksData,
    WorldData,
)
from setwise.planning.learned import choose_network, open_space
from setwise.worlds import PicturedBlocksworld, PuzzleWorld
from tiny_experiments import puzzle_config

FACTS = FactsData(file="x.pl", sha256="0" * 64, rule="a(X, Y) :- b(X, Y).", train=1, test=1)
ROWS = RowsData(
    **{"file": "x.jsonl", "sha256": "0" * 64, "target": "a", "size": 1, "rows": 2, "train": 1},
    elements=Schema.infer("a", [1.5]),
)
SMALL = WorldData(of="puzzle", size=(2, 2), states=24, train=20)
WORLD_KINDS: dict[DataConfig, str | None] = {
    PuzzleData(): "puzzle",
    PuzzleData(variable=True): None,
    BlocksData(): "blocksworld",
    MultisetData(): None,
    NumberingData(): None,
    RulesData(): None,
    FACTS: None,
    ROWS: None,
    SpritesData(): None,
    ScenesData(): None,
    BlockPicturesData(): None,
    TracedBlocksData(): None,
    PuzzlePicturesData(): None,
    SMALL: "puzzle",
    replace(SMALL, of="chess"): "chess",  # known or not: nothing is loaded
}


class TestWorlds:
    def test_all_data_are_tried(self) -> None:
        ours = {kind for kind in TASKS.values() if kind.__module__.startswith("setwise.")}
        assert {type(data) for data in WORLD_KINDS} == ours

    @pytest.mark.parametrize("data", WORLD_KINDS, ids=repr)
    def test_their_kinds_are_told_without_loading(self, data: DataConfig) -> None:
        assert data.world_kind == WORLD_KINDS[data]

    def test_of_the_puzzle(self) -> None:
        data = PuzzleData(width=2, height=3, states=20, train=10)
        assert data.world(data.load()) == PuzzleWorld(2, 3)

    def test_of_blocks(self, tmp_path: Path) -> None:
        """With the vectors of all states, which the archive has in another order."""
        BLOCKS.archive(tmp_path).parent.mkdir()
        painted().write(BLOCKS.archive(tmp_path))
        data = replace(BLOCKS.bound(tmp_path), patch_epochs=1)
        task = data.load(tmp_path)
        world = data.world(task, tmp_path)
        assert isinstance(world, PicturedBlocksworld)
        assert world.world == BLOCKSWORLD
        assert world.kind == data.world_kind
        shown = world.sample(data.states, data.seed)
        assert world.objects(shown).equal(task.targets)
        assert not world.vectors.equal(task.targets)

    def test_of_a_world(self) -> None:
        assert SMALL.world(SMALL.load()) == PuzzleWorld(2, 2)

    @pytest.mark.parametrize(
        ("data", "said"),
        [
            (PuzzleData(variable=True, states=20, train=10), "states with missing objects, which"),
            (RulesData(train=20, test=10), "was trained on rules data, which have no actions"),
        ],
        ids=["puzzle", "rules"],
    )
    def test_there_is_none(self, data: DataConfig, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            data.world(data.load())

    def test_facts_have_none(self) -> None:
        task = RulesData(train=20, test=10).load()
        with pytest.raises(ValueError, match="was trained on facts data, which have no actions"):
            FACTS.world(task)


class TestWorldData:
    @pytest.mark.parametrize("scored_as", ["bernoulli", "categorical"])
    def test_are_what_the_data_of_that_world_are(self, scored_as: str) -> None:
        given = {"states": 300, "train": 250, "scored_as": scored_as, "seed": 3}
        ours = WorldData(of="puzzle", size=(3, 2), **given).load()  # type: ignore[arg-type]
        others = PuzzleData(width=3, height=2, **given).load()  # type: ignore[arg-type]
        assert ours.targets.equal(others.targets)
        assert ours.inputs.equal(others.inputs)
        assert ours.features == others.features
        assert ours.train == others.train == 250

    def test_are_distinct_states_drawn_by_the_seed(self) -> None:
        world = PuzzleWorld(2, 2)
        for count in (1, 10, 24):
            task = replace(SMALL, states=count, train=1).load()
            states = world.index(torch.stack([world.configuration_of(s) for s in task.targets]))
            assert len(states.unique()) == len(task.inputs) == count
        other = replace(SMALL, seed=1).load()
        assert not other.targets.equal(SMALL.load().targets)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"of": "chess"}, "world: unknown 'chess'; known: blocksworld, .*puzzle"),
            ({"states": 25}, r"data: expected 0 < train <= states <= 24, got train 20, states 25"),
            ({"states": 19}, r"data: expected 0 < train <= states <= 24, got train 20, states 19"),
            ({"train": 0}, r"data: expected 0 < train <= states <= 24, got train 0, states 24"),
            ({"size": (2, 2, 2)}, r"data: no puzzle of size \(2, 2, 2\): "),
            ({"of": "blocksworld", "size": ()}, r"data: no blocksworld of size \(\): .* missing"),
            ({"scored_as": "x"}, "scored_as: expected one of .*, got 'x'"),
        ],
    )
    def test_what_cannot_be(self, changes: dict[str, object], said: str) -> None:
        with pytest.raises(ValueError, match=said):
            replace(SMALL, **changes).load()

    def test_a_network_is_of_that_world(self, tmp_path: Path) -> None:
        """From a config to records and back, to a space to plan in."""
        config = replace(puzzle_config(epochs=1, evaluations=1), data=SMALL)
        assert config_from(config.as_dict()) == config
        train([config], "cpu", tmp_path, tmp_path, keep=lambda found: [config.identity])
        assert unfinished([config], tmp_path) == []
        path = choose_network("puzzle", tmp_path)
        assert path == network_path(tmp_path, config)
        space = open_space(path)
        assert space.config == config
        assert space.world == PuzzleWorld(2, 2)
        codes = space.model.encode(space.world.objects(space.world.states()))
        assert codes.shape == (24, config.network.latent)  # type: ignore[attr-defined]
