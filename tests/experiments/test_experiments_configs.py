"""Configs: their names, the way to a file and back, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

from setwise.experiments.config import MEMBERWISE, Config, config_from
from setwise.experiments.recipes import EXPERIMENTS
from setwise.experiments.run import ensembles
from setwise.losses.table import LOSSES
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
    "loss": tuple(LOSSES),
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
        *(
            EXPERIMENTS[name].config("3", "set_average", 3)
            for name in ("table2", "table2-quick", "table2-counted")
        ),
    )

    @pytest.mark.parametrize("config", KINDS, ids=lambda config: config.experiment)
    def test_any_change_changes_the_identity(self, config: Config) -> None:
        ways = [way for way, _ in leaves(config)]
        assert ("schedule", "learning_rate") in ways
        assert ("network", "dropout") in ways
        identities = {changed(config, way).identity for way in ways} | {config.identity}
        assert len(identities) == len(ways) + 1
        assert replace(config).identity == config.identity

    @pytest.mark.parametrize("config", KINDS, ids=lambda config: config.experiment)
    def test_only_what_may_differ_within_an_ensemble_is_not_shared(self, config: Config) -> None:
        for way, _ in leaves(config):
            other = changed(config, way)
            assert (other.shared() == config.shared()) == (way[0] in MEMBERWISE), way
        assert config.shared().shared() == config.shared()

    @pytest.mark.parametrize("name", EXPERIMENTS)
    def test_a_config_comes_back_from_its_record(self, name: str) -> None:
        experiment = EXPERIMENTS[name]
        configs = experiment.configs(seeds=[0, 3])
        assert len(configs) == len(experiment.scenarios) * len(experiment.losses) * 2
        for config in configs:
            assert config.experiment == name
            back = config_from(json.loads(json.dumps(config.as_dict())))
            assert back == config
            assert back.identity == config.identity
            assert hash(back) == hash(config)

    def test_the_whole_of_table_1_is_one_ensemble(self) -> None:
        for table in ("table1", "table2"):
            configs = EXPERIMENTS[table].configs()
            assert len({config.identity for config in configs}) == len(configs) == 160
            assert len(ensembles(configs)) == 1
        both = EXPERIMENTS["table1"].configs() + EXPERIMENTS["table2"].configs()
        groups = ensembles(both[::-1])
        assert [len({config.experiment for config in group}) for group in groups] == [1, 1]

    def test_a_seed_is_one_that_a_tensor_can_hold(self) -> None:
        assert puzzle_config(seed=2**63 - 1).seed == 2**63 - 1
        for seed in (-1, 2**63):
            with pytest.raises(ValueError, match=rf"^seed: must be from 0 to .*, got {seed}$"):
                puzzle_config(seed=seed)

    @pytest.mark.parametrize("part", ["config", "data", "network", "schedule"])
    def test_unknown_fields_are_refused(self, part: str) -> None:
        saved = puzzle_config().as_dict()
        (saved if part == "config" else saved[part])["colour"] = 1
        with pytest.raises(ValueError, match=f"{part}: unknown fields colour"):
            config_from(saved)

    @pytest.mark.parametrize("part", ["data", "network"])
    def test_unknown_kinds_are_refused(self, part: str) -> None:
        saved = puzzle_config().as_dict()
        saved[part]["kind"] = "schedule"
        with pytest.raises(ValueError, match=f"{part}: unknown 'schedule'; known: "):
            config_from(saved)
