"""Trained networks on disk: one file each, with the config that made it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from setwise.experiments import checkpoint
from setwise.experiments.config import Config, config_from
from setwise.experiments.records import SCHEMA, upgraded_config
from setwise.experiments.tasks.rules import FactsData
from setwise.experiments.tasks.task import DATA, Task
from setwise.experiments.train import Training, build_network


def network_path(runs: Path, config: Config) -> Path:
    """Where the network of a run is kept."""
    return runs / config.experiment / f"{config.identity}.safetensors"


def save_network(path: Path, training: Training, index: int) -> None:
    """Write the network of a member with its config, for `load_network`."""
    tensors = {name: t.cpu() for name, t in training.ensemble.member(index).items()}
    facts = {
        "schema": SCHEMA,
        "config": training.configs[index].as_dict(),
        "learned": training.task.measure.learned,
    }
    checkpoint.write(path, tensors, facts)


def load_network(
    path: Path, facts: Path | None = None, data: Path = DATA
) -> tuple[Config, nn.Module]:
    """The config and the network that `save_network` wrote, on the CPU and in evaluation mode.

    A network that learned from a file of facts needs it again; ``facts`` is where it lies now.
    Other data that are files lie in the folder ``data``, with what was learned about them: that is
    never learned anew here, since the network knows no other.
    """
    config, network, _ = load_network_and_task(path, facts, data)
    return config, network


def load_network_and_task(
    path: Path, facts: Path | None = None, data: Path = DATA
) -> tuple[Config, nn.Module, Task]:
    """What `load_network` gives, and the examples that the network learned from."""
    tensors, header = checkpoint.read(path)
    config = _config(path, header)
    if facts is not None:
        if not isinstance(config.data, FactsData):
            raise ValueError(f"{path}: was not trained on a file of facts, which {facts} is")
        config = replace(config, data=replace(config.data, file=str(facts)))
    config.data.require_learned(data, header.get("learned"))
    task = config.data.load(data)
    network = build_network(config, task, to_train=False)
    network.load_state_dict(tensors)
    return config, config.network.model(network.eval()), task


def read_config(path: Path) -> Config:
    """The config of a network, without reading its weights."""
    return _config(path, checkpoint.read_facts(path))


def networks_among(files: Iterable[Path]) -> Iterator[tuple[Path, Config]]:
    """Those files that hold a network, and its config; one that is damaged is told and left out."""
    for path in sorted(files):
        try:
            header = checkpoint.read_facts(path)
            if "config" in header:
                yield path, _config(path, header)
        except ValueError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)


def _config(path: Path, header: dict[str, Any]) -> Config:
    if "config" not in header:
        raise ValueError(f"{path}: holds no network but the state of an unfinished training")
    saved = header["config"]
    return config_from(saved if "schema" in header else upgraded_config(saved))
