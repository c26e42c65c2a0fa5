"""Facts about roads between towns, and commands that learn a rule from them in seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from setwise import cli
from setwise.experiments.config import Config, Schedule
from setwise.experiments.networks import RuleLearner
from setwise.experiments.recipes import table4
from setwise.experiments.tasks import RulesData
from tiny_recipe import make_known

# A ring of eight towns with two roads across it, and one town beside it.
ROADS = [(i, (i + 1) % 8) for i in range(8)] + [(0, 3), (2, 6), (5, 8)]
PROLOG = "% towns\n" + "".join(f"road(t{a},t{b}).\nroad(t{b},t{a}).\n" for a, b in ROADS)
TRIPLES = "# towns\n" + "".join(f"t{a}\troad\tt{b}\n" for a, b in ROADS)
OTHERS = "mayor(ann,t1).\nmayor(bob,t2).\n"


def tiny(scenario: str, loss: str, seed: int) -> Config:
    n, order = scenario.split("-")
    return Config(
        experiment="table4-quick",
        scenario=scenario,
        loss=loss,
        seed=seed,
        shuffle_input=False,
        shuffle_target=order == "random",
        data=RulesData(n=int(n[1:]), train=28, test=6),
        network=RuleLearner(width=64, hidden_layers=1, dropout=0.0),
        schedule=Schedule(epochs=40, batch=14, learning_rate=1e-2, cooldown=0.5, evaluations=2),
        precision="highest",
    )


def make_tiny_known(patch: pytest.MonkeyPatch) -> None:
    """In place of the quick preset of Table 4."""
    scenarios = dict.fromkeys(("n2-fixed", "n2-random", "n3-random"), "a tiny one")
    make_known(patch, replace(table4.QUICK, config=tiny, scenarios=scenarios, seeds=1))


def train(*options: str) -> int:
    start = ["reproduce", "table4", "--preset", "quick", "--device", "cpu", "--losses", "SH"]
    return cli.main([*start, *options])


def roads_from(town: int) -> set[int]:
    return {b for a, b in ROADS if a == town} | {a for a, b in ROADS if b == town}


def paths_of_two() -> list[tuple[int, int, int]]:
    """Counted without the library."""
    return [(a, b, c) for b in range(9) for a in roads_from(b) for c in roads_from(b) if a != c]
