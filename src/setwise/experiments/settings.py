"""Whether runs are of one setting: those of a cell differ in their seeds and in nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def check_settings(experiment: str, configs: Iterable[dict[str, Any]]) -> None:
    """Refuse runs of one cell that differ in more than their seeds: their spread means nothing."""
    first: dict[tuple[str, str], dict[str, str]] = {}
    for config in configs:
        here = _settings(config)
        there = first.setdefault((config["loss"], config["scenario"]), here)
        if here != there:
            changed = sorted(k for k in here.keys() | there.keys() if here.get(k) != there.get(k))
            values = [f"{k} ({there.get(k)} and {here.get(k)})" for k in changed[:3]]
            raise ValueError(
                f"{experiment}: runs of {config['loss']} in scenario {config['scenario']} differ "
                f"in {', '.join(values)}; move the old records away or use another folder for the "
                f"new"
            )


def _settings(config: dict[str, Any]) -> dict[str, str]:
    """All of a config but the seed, one entry a leaf: {"schedule.epochs": "1500", ...}."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{key}": leaf for key, leaf in value.items()}
        elif name != "seed":
            flat[name] = value
    return {name: json.dumps(value) for name, value in flat.items()}
