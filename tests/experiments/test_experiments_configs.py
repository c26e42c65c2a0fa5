"""Configs: their names, the way to a file and back, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

import pytest

from setwise.experiments import reproduce
from setwise.experiments.config import (
    LOSSES,
    MEMBERWISE,
    Config,
    config_from,
)
from setwise.experiments.recipes import RECIPES
from tiny_experiments import puzzle_config, rules_config


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every field of a config that holds no other fields, with the way to it."""
    for field in fields(value):
        inner, way = getattr(value, field.name), (*path, field.name)
        if is_dataclass(inner):
            yield from leaves(inner, way)
        else:
            yield way, inner


# Fields that take nothing but these.
CHOICES = {
    "loss": LOSSES,
    "precision": ("highest", "high", "medium"),
    "dummies": ("cells", "counted"),
}


def changed(config: Any, way: tuple[str, ...]) -> Any:
    """The same, but for one field, which holds another value of its type."""
    name, *rest = way
    value = getattr(config, name)
    if rest:
        return replace(config, **{name: changed(value, tuple(rest))})
    if name in CHOICES:
        return replace(config, **{name: next(c for c in CHOICES[name] if c != value)})
    other = {
        bool: lambda: not value,
        int: lambda: value + 1,
        float: lambda: value + 2**-20,
        str: lambda: value + "?",
        tuple: lambda: (*value, 1),
    }[type(value)]()
    return replace(config, **{name: other})


class TestConfigs:
    KINDS = (
        puzzle_config(),
        rules_config("1", "H", 0),
        *(recipe.config(recipe.scenarios[-1], "A1H", 3) for recipe in RECIPES["table2"].values()),
    )

    @pytest.mark.parametrize("config", KINDS, ids=lambda config: config.table)
    def test_any_change_changes_the_identity(self, config: Config) -> None:
        ways = [way for way, _ in leaves(config)]
        assert ("schedule", "learning_rate") in ways
        assert ("network", "dropout") in ways
        identities = {changed(config, way).identity for way in ways} | {config.identity}
        assert len(identities) == len(ways) + 1
        assert replace(config).identity == config.identity

    @pytest.mark.parametrize("config", KINDS, ids=lambda config: config.table)
    def test_only_what_may_differ_within_an_ensemble_is_not_shared(self, config: Config) -> None:
        for way, _ in leaves(config):
            other = changed(config, way)
            assert (other.shared() == config.shared()) == (way[0] in MEMBERWISE), way
        assert config.shared().shared() == config.shared()

    @pytest.mark.parametrize("table", RECIPES)
    def test_a_config_comes_back_from_its_record(self, table: str) -> None:
        for recipe in RECIPES[table].values():
            configs = recipe.configs(seeds=[0, 3])
            assert len(configs) == len(recipe.scenarios) * 4 * 2
            for config in configs:
                back = config_from(json.loads(json.dumps(asdict(config))))
                assert back == config
                assert back.identity == config.identity
                assert hash(back) == hash(config)

    def test_the_whole_of_table_1_is_one_ensemble(self) -> None:
        for table in ("table1", "table2"):
            configs = RECIPES[table]["paper"].configs()
            assert len({config.identity for config in configs}) == len(configs) == 160
            assert len(reproduce.ensembles(configs)) == 1
        both = RECIPES["table1"]["paper"].configs() + RECIPES["table2"]["paper"].configs()
        groups = reproduce.ensembles(both[::-1])
        assert [len({config.table for config in group}) for group in groups] == [1, 1]

    @pytest.mark.parametrize("part", ["config", "data", "network", "schedule"])
    def test_unknown_fields_are_refused(self, part: str) -> None:
        saved = asdict(puzzle_config())
        (saved if part == "config" else saved[part])["colour"] = 1
        with pytest.raises(ValueError, match=f"{part}: unknown fields colour"):
            config_from(saved)

    @pytest.mark.parametrize("part", ["data", "network"])
    def test_unknown_kinds_are_refused(self, part: str) -> None:
        saved = asdict(puzzle_config())
        saved[part]["kind"] = "schedule"
        with pytest.raises(ValueError, match=f"{part}: unknown kind 'schedule'; known: "):
            config_from(saved)
