"""Saved networks from anywhere: every file is loaded, or refused in one line that names it."""

from __future__ import annotations

import json
import os
import random
import re
import struct
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hostile import VALUES, flipped, join_safetensors, mutated, shortened, split_safetensors
from limits import failures, within_limits
from setwise.experiments.networks import EquivariantLearner
from setwise.experiments.saved_networks import load_network, networks_among, save_network
from setwise.experiments.tasks import FactsData, PuzzleData, WorldData
from setwise.experiments.tasks.rules import fingerprint
from setwise.experiments.train import Training
from tiny_experiments import puzzle_config, replace, rules_config

# Slow: 600 files. One of each kind of damage is in tests/experiments/test_saved_networks.py.
pytestmark = pytest.mark.slow
CASES = 624
FACTS = "".join(f"near(c{i},c{(i * 7 + 3) % 40}).\n" for i in range(40))


@cache
def originals() -> list[bytes]:
    """Networks of every kind of data that needs no pictures."""
    folder = Path(tempfile.mkdtemp())
    (folder / "facts").write_text(FACTS)
    puzzle, rules = puzzle_config(), rules_config("4", "SH", 0)
    world = WorldData(of="puzzle", size=(2, 2), states=24, train=20)
    facts = FactsData(
        file=str(folder / "facts"),
        sha256=fingerprint(folder / "facts"),
        rule="near2(A,B,C) :- near(A,B), near(B,C).",
        train=20,
        test=5,
    )
    configs = [
        puzzle,
        replace(puzzle, data=PuzzleData(width=3, height=2, states=24, train=20, variable=True)),
        replace(puzzle, data=world),
        rules,
        replace(rules, network=EquivariantLearner(width=8)),
        replace(rules, data=facts),
    ]
    for number, config in enumerate(configs):
        save_network(folder / str(number), Training([config], "cpu"), 0)
    return [(folder / str(number)).read_bytes() for number in range(len(configs))]


def damaged(seed: int) -> bytes:
    rng = random.Random(seed)
    data = rng.choice(originals())
    header, body = split_safetensors(data)
    facts = json.loads(header["__metadata__"]["facts"])
    facts.pop("sha256", None)  # whoever changes a file on purpose leaves out its digest
    header["__metadata__"]["facts"] = json.dumps(facts)
    tensors = sorted(set(header) - {"__metadata__"})
    tensor = rng.choice(tensors)
    how = seed % 12
    if how == 0:
        return shortened(data, rng)
    if how == 1:
        return flipped(data, rng)
    if how == 2:
        return flipped(data, rng, most=len(data) - len(body))
    if how == 3:
        return struct.pack("<Q", rng.choice([0, 1, 7, 2**31, 2**63, 2**64 - 1])) + data[8:]
    if how == 4:  # sizes, types and places of tensors
        field = rng.choice(["dtype", "shape", "data_offsets"])
        kinds = ["F64", "BF16", "I8", "BOOL", "F8_E4M3", "X"]
        header[tensor][field] = rng.choice(kinds if field == "dtype" else VALUES)
        return join_safetensors(header, body)
    if how == 5:  # right in itself, but not what the config says
        shape = header[tensor]["shape"]
        header[tensor]["shape"] = [*shape[::-1], 1] if rng.random() < 0.5 else shape[::-1]
        return join_safetensors(header, body)
    if how == 6:
        header[rng.choice(["x", "", "a.b"])] = header.pop(tensor)
        return join_safetensors(header, body)
    if how == 7:
        return join_safetensors(mutated(header, rng), body)
    if how == 8:
        texts = ["", "null", "[]", "3", "NaN", "{", '{"config": ', "[" * 10**5, "9" * 10**4]
        texts += ['{"config": ' + "[" * 900 + "]" * 900 + "}", '"' + "x" * 10**5 + '"']
        header["__metadata__"] = {"facts": rng.choice(texts)}
        return join_safetensors(header, body)
    header["__metadata__"]["facts"] = json.dumps(_hostile_facts(facts, rng))
    return join_safetensors(header, body)


def _hostile_facts(facts: dict[str, Any], rng: random.Random) -> Any:
    """Mostly sizes: those of the network and of its data."""
    if rng.random() < 0.4:
        return mutated(facts, rng)
    part = facts["config"][rng.choice(["data", "data", "network", "schedule"])]
    field = rng.choice(sorted(part))
    sizes = [-1, 0, 1, 3, 5, 12, 25, 1000, 10**6, 10**9, 10**12, 2**62]
    value = rng.choice(sizes)
    part[field] = [value] * rng.randint(1, 3) if isinstance(part[field], list) else value
    return facts


def attempt(case: int) -> str:
    folder = Path(tempfile.mkdtemp())
    path = folder / "network.safetensors"
    path.write_bytes(damaged(case))
    try:
        load_network(path)
        said = ""
    except ValueError as error:
        said = str(error)
        assert said.startswith(f"{path}: "), said
        assert "\n" not in said
        assert "alloc" not in said  # refused before, not by the system
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        list(networks_among([path]))
    path.unlink()
    return said


def test_every_file_is_loaded_or_refused_in_one_line() -> None:
    found = within_limits(attempt, range(CASES), seconds=60, megabytes=1500)
    assert not failures(found)
    refused = sum(1 for one in found if one.value)
    assert CASES // 2 < refused < CASES  # a flipped bit of a weight is no damage that can be seen


def special(kind: str) -> str:
    path = Path(tempfile.mkdtemp()) / "network.safetensors"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link to nothing":
        path.symlink_to("nowhere")
    elif kind == "link to itself":
        path.symlink_to(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    with pytest.raises((ValueError, OSError), match=re.escape(str(path))) as refused:
        load_network(path)
    return str(refused.value)


def test_what_is_no_file_at_all() -> None:
    said = {
        "pipe": "it is a pipe",
        "folder": "it is a folder",
        "link to nothing": "which is not there",
        "link to itself": "which is not there",
        "device": "it is a device",
        "nothing": "No such file",
    }
    found = within_limits(special, list(said), seconds=5)
    assert not failures(found)
    for one in found:
        assert said[one.case] in str(one.value)
