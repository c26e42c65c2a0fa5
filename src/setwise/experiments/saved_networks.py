"""Trained networks on disk: one file each, with the config that made it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from setwise.experiments import checkpoint
from setwise.experiments.config import Config, config_from
from setwise.experiments.records import SCHEMA, upgraded_config
from setwise.experiments.tasks.task import DATA, MOST_NUMBERS, Task
from setwise.experiments.train import Training, build_network
from setwise.experiments.weights import load_weights
from setwise.outside import named

File = TypeVar("File")
Opened = TypeVar("Opened")


def network_path(runs: Path, config: Config) -> Path:
    """Where the network of a run is kept."""
    return runs / config.experiment / f"{config.identity}.safetensors"


def save_network(path: Path, training: Training, index: int) -> None:
    """Write the network of a member with its config, for `load_network`."""
    checkpoint.write_packed(path, packed_network(training, index))


def packed_network(training: Training, index: int) -> bytes:
    """The content of the file that `save_network` writes."""
    tensors = {name: t.cpu() for name, t in training.ensemble.member(index).items()}
    facts = {
        "schema": SCHEMA,
        "config": training.configs[index].as_dict(),
        "learned": training.task.measure.learned,
    }
    return checkpoint.packed(tensors, facts)


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
    header = _header(path)
    config = _config(path, header)
    with named(path, OSError, TypeError, RuntimeError, OverflowError):
        if facts is not None:
            config = replace(config, data=config.data.moved_to(facts))
        config.data.require_learned(data, header.get("learned"))
        if (numbers := config.data.numbers() or 0) > MOST_NUMBERS:
            raise ValueError(f"data: {numbers} numbers, more than the {MOST_NUMBERS} allowed")
        task = config.data.load(data)
    network = load_weights(path, lambda: build_network(config, task, to_train=False))
    return config, config.network.model(network), task


def read_config(path: Path) -> Config:
    """The config of a network, without reading its weights."""
    return _config(path, _header(path))


def networks_among(files: Iterable[Path]) -> Iterator[tuple[Path, Config]]:
    """Those files that hold a network, and its config; one that is damaged is told and left out."""
    for path in sorted(files):
        try:
            header = _header(path)
            if "config" in header:
                yield path, _config(path, header)
        except (OSError, ValueError) as error:
            warnings.warn(f"left out: {error}", stacklevel=2)


def first_that_opens(files: Iterable[File], opened: Callable[[File], Opened]) -> Opened | None:
    """What the first of the files is that can be opened; those before it are told and left out.

    None if there are none; the error of the first if no file can be opened.
    """
    failures = []
    for file in files:
        try:
            found = opened(file)
        except (OSError, ValueError) as error:
            failures.append(error)
        else:
            for failure in failures:
                warnings.warn(f"left out: {failure}", stacklevel=2)
            return found
    if failures:
        raise failures[0]
    return None


def _header(path: Path) -> dict[str, Any]:
    with named(path):
        return checkpoint.read_facts(path)


def _config(path: Path, header: dict[str, Any]) -> Config:
    if "config" not in header:
        raise ValueError(f"{path}: holds no network but the state of an unfinished training")
    with named(path, RecursionError, TypeError):
        saved = header["config"]
        if not isinstance(saved, dict):
            raise ValueError(f"config: expected an object with its fields, got {saved!r:.60}")
        return config_from(saved if "schema" in header else upgraded_config(saved))
