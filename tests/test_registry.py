"""Names that are looked up: the error lists what is known, and nothing is replaced unnoticed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from setwise.experiments import NETWORKS, TASKS, Experiment, NetworkConfig
from setwise.experiments.networks import RuleLearner
from setwise.experiments.recipes import EXPERIMENTS
from setwise.registry import Registry


def test_entries_come_in_their_order() -> None:
    registry = Registry[type]("thing")
    for entry in (int, str, float):
        registry.add(entry.__name__, entry)
    assert list(registry) == ["int", "str", "float"]
    assert len(registry) == 3
    assert registry["str"] is str
    assert "str" in registry
    assert "list" not in registry
    assert dict(registry.items()) == {"int": int, "str": str, "float": float}


def test_an_unknown_name_lists_the_known_ones() -> None:
    registry = Registry[type]("thing")
    with pytest.raises(ValueError, match="thing: unknown 'x'; known: none"):
        registry["x"]
    registry.add("int", int)
    with pytest.raises(ValueError, match="thing: unknown 3; known: int"):
        registry[3]  # type: ignore[index]
    for registered, known in ((TASKS, "rules, facts"), (NETWORKS, "perceptron, predictor")):
        with pytest.raises(ValueError, match=f"unknown 'x'; known: .*{known}"):
            registered["x"]


def test_an_unknown_name_is_no_key_and_no_value() -> None:
    """So that it reads as any mapping does, and those who check settings catch it as a value."""
    registry = Registry[int]("thing")
    assert registry.get("x") is None
    assert registry.get("x", 3) == 3
    for kind in (KeyError, ValueError):
        with pytest.raises(kind) as error:
            registry["x"]
        assert str(error.value) == "thing: unknown 'x'; known: none"


def test_a_name_is_not_taken_twice() -> None:
    registry = Registry[type]("thing")
    registry.add("number", int)
    registry.add("number", int)
    with pytest.raises(ValueError, match=r"thing: 'number' is taken, by builtins\.int"):
        registry.add("number", float)
    for name in ("", None):
        with pytest.raises(TypeError, match="expected a name"):
            registry.add(name, int)  # type: ignore[arg-type]


def test_a_value_is_replaced_by_no_other_of_its_type() -> None:
    registry = Registry[Experiment]("experiment")
    first = EXPERIMENTS["table1"]
    registry.add("mine", first)
    registry.add("mine", replace(first))
    with pytest.raises(ValueError, match=r"experiment: 'mine' is taken, by .*Experiment"):
        registry.add("mine", replace(first, title="another"))
    assert registry["mine"].title == first.title


def test_a_kind_of_somebody_else_cannot_take_the_place_of_ours() -> None:
    with pytest.raises(ValueError, match=r"network: 'rule learner' is taken, by setwise\."):

        class Mine(NetworkConfig):
            kind = "rule learner"

    assert NETWORKS["rule learner"] is RuleLearner
