"""Records of finished runs in their current form, whatever form they were written in.

Schema 2 calls experiments, losses and temperatures by the names the library has for them. Records
without a number are of schema 1: those of the first release.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from setwise.experiments import store
from setwise.experiments.config import Config

SCHEMA = 2

Record = dict[str, Any]
T = TypeVar("T")

_LOSSES = {
    "H": "ordered_cross_entropy",
    "SH": "set_cross_entropy",
    "A1H": "set_average",
    "H1H": "hausdorff",
}
_SCHEDULE = {
    "temperature_start": "latent_temperature_start",
    "temperature_end": "latent_temperature_end",
    "temperature_until": "latent_temperature_until",
    "softness": "loss_temperature",
    "softness_until": "loss_temperature_until",
}
_WORLDS = {"blocks": "blocksworld"}
# Fields that came after the first records, which were written as if they had these values.
_SCHEDULE_LATER = {
    "loss_temperature": 1.0,
    "loss_temperature_until": 0.6,
    "recombined": 0.0,
    "donors": 32,
}


def read(path: Path) -> list[Record]:
    """All whole records of a file, none if it does not exist."""
    return [upgraded(record) for record in store.read(path)]


def read_as(path: Path, told: Callable[[dict[str, Any]], T]) -> set[T]:
    """What ``told`` makes of the configs in a file; a ValueError names the line where it cannot."""
    found = set()
    for number, record in enumerate(read(path), start=1):
        try:
            found.add(told(record["config"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            said = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ValueError(f"{path}, line {number}: not a record of a run: {said}") from error
    return found


def upgraded(record: Record) -> Record:
    """A record of any known schema as one of the current schema; anything else as it is.

    >>> upgraded({"table": "table1", "loss": "SH", "config": {}})["loss"]
    'set_cross_entropy'
    """
    if not isinstance(record, dict) or "schema" in record or "table" not in record:
        return record
    record = {"schema": SCHEMA, "experiment": record["table"], **record}
    del record["table"]
    record |= _named(record)
    if isinstance(record.get("config"), dict):
        record["config"] = upgraded_config(record["config"])
    return record


def upgraded_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config of a record of schema 1 as one of schema 2."""
    new = dict(config)
    if "table" in new:
        new = {"experiment": new.pop("table"), **new}
    new |= _named(new)
    if isinstance(new.get("trained"), dict) and "table" in new["trained"]:
        trained = dict(new["trained"])
        new["trained"] = {"experiment": trained.pop("table"), **trained}
    planning = new.get("planning")
    if isinstance(planning, dict) and "domain" in planning:
        planning = dict(planning)
        domain = planning.pop("domain")
        new["planning"] = {"world": _renamed(_WORLDS, domain), **planning}
    if isinstance(new.get("schedule"), dict):
        renamed = {_SCHEDULE.get(name, name): value for name, value in new["schedule"].items()}
        new["schedule"] = _SCHEDULE_LATER | renamed
    network = new.get("network")
    if isinstance(network, dict) and network.get("kind") == "autoencoder":
        new["network"] = {"start_at_prototypes": False} | network
    return new


def _named(saved: dict[str, Any]) -> dict[str, Any]:
    """The loss by the name of its function, where one was recorded by its symbol."""
    return {"loss": _renamed(_LOSSES, saved["loss"])} if "loss" in saved else {}


def _renamed(names: dict[str, str], old: Any) -> Any:
    """The new name, if there is one; what is no name is left to whoever reads the record."""
    return names.get(old, old) if isinstance(old, str) else old


def record_of(config: Config, metrics: dict[str, float], history: dict[str, list[float]]) -> Record:
    """What a record says of a run itself; where it took place is added to it."""
    return {
        "schema": SCHEMA,
        "run": config.identity,
        "experiment": config.experiment,
        "scenario": config.scenario,
        "loss": config.loss,
        "seed": config.seed,
        "metrics": {name: _number(value) for name, value in metrics.items()},
        "history": {
            name: [_number(value, digits=5) for value in curve] for name, curve in history.items()
        },
        "config": config.as_dict(),
    }


def _number(value: float, digits: int | None = None) -> float | None:
    """JSON knows no NaN and no infinity, which a diverged run has for a loss: None then."""
    if not math.isfinite(value):
        return None
    return value if digits is None else round(value, digits)
