"""Whether runs are of one setting: those of a cell differ in their seeds and in nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any

from setwise.experiments.config import Schedule
from setwise.experiments.networks import NETWORKS
from setwise.experiments.tasks import TASKS


def check_settings(experiment: str, configs: Iterable[dict[str, Any]]) -> None:
    """Refuse runs of one cell that differ in more than their seeds: their spread means nothing."""
    first: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
    for config in configs:
        own = {name: value for name, value in config.items() if name != "seed"}
        text = json.dumps(own)
        as_text, other = first.setdefault((config["loss"], config["scenario"]), (text, own))
        if text == as_text:
            continue  # nearly all; to take them apart would take most of the time of reading
        here, there = _settings(own), _settings(other)
        if here != there:
            changed = sorted(k for k in here.keys() | there.keys() if here.get(k) != there.get(k))
            values = [f"{k} ({there.get(k)} and {here.get(k)})" for k in changed[:3]]
            raise ValueError(
                f"{experiment}: runs of {config['loss']} in scenario {config['scenario']} differ "
                f"in {', '.join(values)}; move the old records away or use another folder for the "
                f"new"
            )


def _settings(config: dict[str, Any]) -> dict[str, str]:
    """All of a config, one entry a leaf: {"schedule.epochs": "1500", ...}."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            whole = _defaults(name, value.get("kind")) | value
            flat |= {f"{name}.{key}": leaf for key, leaf in whole.items()}
        else:
            flat[name] = value
    return {name: json.dumps(value) for name, value in flat.items()}


def _defaults(part: str, kind: Any) -> dict[str, Any]:
    """What fields stand for that a later version added; none of a kind that is not known here."""
    known: Any = {"schedule": {None: Schedule}, "data": TASKS, "network": NETWORKS}.get(part, {})
    if not isinstance(kind, str | None) or kind not in known:
        return {}
    return {one.name: one.default for one in fields(known[kind]) if one.default is not MISSING}
