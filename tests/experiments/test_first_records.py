"""Records and networks as the first release wrote them, and of every schema since."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from setwise.experiments import checkpoint, records, store
from setwise.experiments.config import config_from
from setwise.experiments.recipes import table1
from setwise.experiments.saved_networks import read_config

H, SH = "ordered_cross_entropy", "set_cross_entropy"


# Records as the first release wrote them, but for what they have of the machine.
FIRST_CONFIG: dict[str, Any] = {
    **{"table": "table1", "scenario": "4", "loss": "SH", "seed": 3},
    **{"shuffle_input": True, "shuffle_target": True},
    "data": {
        **{"kind": "puzzle", "width": 3, "height": 3, "states": 5000, "train": 4500},
        **{"variable": False, "dummies": "cells", "scored_as": "bernoulli", "seed": 0},
    },
    "network": {
        **{"kind": "autoencoder", "element_widths": [1000, 1000], "widths": [1000, 1000]},
        **{"latent": 100, "decoder_width": 1000, "dropout": 0.5, "noise": True},
    },
    "schedule": {
        **{"epochs": 1500, "batch": 500, "learning_rate": 0.001, "cooldown": 0.2},
        **{"temperature_start": 5.0, "temperature_end": 0.7, "temperature_until": 0.7},
        "evaluations": 30,
    },
    "precision": "high",
}
FIRST: dict[str, Any] = {
    **{"run": "2093d0c6ef291afa", "table": "table1", "scenario": "4", "loss": "SH", "seed": 3},
    "metrics": {"success": 0.9034, "heldout": 0.382},
    "history": {"epoch": [1500], "success": [0.9034]},
    "config": FIRST_CONFIG,
    **{"ensemble": "5b6a88940875d83b", "members": 160, "seconds": 374.35},
}
FIRST_PLANS: dict[str, Any] = FIRST | {
    "table": "table5",
    "config": FIRST_CONFIG
    | {
        "table": "table5",
        "trained": {"table": "table1", "scenario": "4"},
        "planning": {"domain": "blocks", "steps": 7, "problems": 20, "seed": 0},
    },
}


class TestRecords:
    def test_a_record_of_the_first_release(self) -> None:
        found = records.upgraded(FIRST)
        named = {"schema": 2, "experiment": "table1", "loss": SH}
        assert found == {
            name: value for name, value in FIRST.items() if name not in ("table", "config")
        } | named | {"config": found["config"]}
        assert config_from(found["config"]) == table1.paper("4", SH, 3)
        assert FIRST["table"] == "table1"  # what was given stays as it is
        assert FIRST["config"]["schedule"].keys() & {"loss_temperature"} == set()

    def test_what_was_called_otherwise_keeps_its_value(self) -> None:
        given = {
            **{"temperature_start": 4.0, "temperature_end": 0.5, "temperature_until": 0.4},
            **{"softness": 3.0, "softness_until": 0.3, "recombined": 0.5},
        }
        config = FIRST_CONFIG | {"schedule": FIRST_CONFIG["schedule"] | given}
        schedule = config_from(records.upgraded_config(config)).schedule
        assert schedule == replace(
            table1.PAPER_SCHEDULE,
            latent_temperature_start=4.0,
            latent_temperature_end=0.5,
            latent_temperature_until=0.4,
            loss_temperature=3.0,
            loss_temperature_until=0.3,
            recombined=0.5,
        )

    @pytest.mark.parametrize(("symbol", "loss"), [("H", H), ("A1H", "set_average"), ("H1H", None)])
    def test_losses(self, symbol: str, loss: str | None) -> None:
        found = records.upgraded(FIRST | {"loss": symbol, "config": {"loss": symbol}})
        assert found["loss"] == found["config"]["loss"] == (loss or "hausdorff")

    def test_plans_of_the_first_release(self) -> None:
        found = records.upgraded(FIRST_PLANS)
        assert found["experiment"] == found["config"]["experiment"] == "table5"
        assert found["config"]["trained"] == {"experiment": "table1", "scenario": "4"}
        assert found["config"]["planning"] == {
            **{"world": "blocksworld", "steps": 7, "problems": 20, "seed": 0},
        }

    def test_what_is_current_or_no_record_stays_as_it_is(self) -> None:
        current = records.upgraded(FIRST)
        assert records.upgraded(current) is current
        for other in ({"anything": 1}, {"schema": 3, "table": "x"}, [], None):
            assert records.upgraded(other) is other  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", [["SH"], {}, None, 3])
    def test_what_is_no_name(self, name: object) -> None:
        """It is left to whoever reads the record, who can say in which line it is."""
        config = {"loss": name, "planning": {"domain": name}}
        found = records.upgraded(FIRST | {"loss": name, "config": config})
        assert found["loss"] == found["config"]["loss"] == name
        assert found["config"]["planning"] == {"world": name}

    def test_a_cost_of_the_first_release(self) -> None:
        assert records.upgraded({"table": "table1", "networks": 160}) == {
            **{"schema": 2, "experiment": "table1", "networks": 160},
        }

    def test_a_file_of_both(self, tmp_path: Path) -> None:
        path = tmp_path / "table1.jsonl"
        store.append(path, [FIRST, records.upgraded(FIRST) | {"seed": 4}])
        assert [(r["schema"], r["seed"]) for r in records.read(path)] == [(2, 3), (2, 4)]

    def test_a_network_of_the_first_release(self, tmp_path: Path) -> None:
        path = tmp_path / "network.safetensors"
        checkpoint.write(path, {"weight": torch.zeros(1)}, {"config": FIRST_CONFIG})
        assert read_config(path) == table1.paper("4", SH, 3)
