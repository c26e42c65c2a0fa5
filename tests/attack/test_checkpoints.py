"""Checkpoints from anywhere: gone on from to the same bits, or refused in one line."""

from __future__ import annotations

import json
import os
import random
import struct
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hostile import VALUES, flipped, join_safetensors, mutated, shortened, split_safetensors
from limits import failures, within_limits
from setwise.experiments import checkpoint
from setwise.experiments.train import StoppedError, Training
from tiny_experiments import puzzle_config

# Slow: 360 files. Some kinds of damage are in tests/experiments/test_experiments_interruption.py.
pytestmark = pytest.mark.slow
CASES = 360
CONFIGS = [puzzle_config(seed=seed, epochs=3, evaluations=3) for seed in (0, 1)]

Outcome = tuple[dict[str, bytes], str]  # all tensors, and the results


def outcome(training: Training) -> Outcome:
    results = repr(training.run())
    tensors = training.ensemble.tensors()
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, results


@cache
def undisturbed() -> Outcome:
    return outcome(Training(CONFIGS, "cpu"))


@cache
def original() -> bytes:
    """After two of three epochs."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "state.ckpt"
        answers = iter([False, True])
        with pytest.raises(StoppedError):
            Training(CONFIGS, "cpu", path).run(stop=lambda: next(answers))
        return path.read_bytes()


def of_other_sizes(tensors: dict[str, Tensor], rng: random.Random) -> None:
    """One that is missing, or that a copy would stretch or round, or that is too large by far."""
    name = rng.choice(sorted(tensors))
    tensor = tensors.pop(name)
    changes: list[Callable[[], Tensor | None]] = [
        lambda: None,
        lambda: tensor.double(),
        lambda: tensor.to(torch.bfloat16),
        lambda: tensor.reshape(-1)[:1],
        lambda: tensor.sum(),
        lambda: tensor.unsqueeze(0),
        lambda: tensor[:0] if tensor.ndim else tensor.expand(3),
        lambda: torch.zeros(2**20),
    ]
    changed = rng.choice(changes)()
    if changed is not None:
        tensors[rng.choice([name, name, f"{name}.other", ""])] = changed.contiguous()


def attacked(seed: int, path: Path) -> bool:
    """Write a damaged checkpoint; whether it may be taken for whole, with other numbers in it."""
    rng, how = random.Random(seed), seed % 9
    path.write_bytes(original())
    if how in (0, 1):
        path.write_bytes([shortened, flipped][how](original(), rng))
        return False
    header, body = split_safetensors(original())
    if how == 2:
        path.write_bytes(flipped(original(), rng, most=len(original()) - len(body)))
    elif how == 3:
        size = rng.choice([0, 1, 7, 2**31, 2**63, 2**64 - 1])
        path.write_bytes(struct.pack("<Q", size) + original()[8:])
    elif how == 4:
        path.write_bytes(join_safetensors(mutated(header, rng), body))
    elif how == 5:
        text = rng.choice(
            ["", "[]", "null", "{", "[" * 10**4, '"x"', "NaN", "\x00", "{}", "9" * 5000]
        )
        header["__metadata__"]["facts"] = text
        path.write_bytes(join_safetensors(header, body))
    if how < 6:
        return False
    tensors, facts = checkpoint.read(path)
    if how == 6:
        of_other_sizes(tensors, rng)
    elif how == 7:
        facts = mutated(facts, rng)
    else:
        name = rng.choice(["epoch", "seconds", "history", "runs", "learned"])
        facts[name] = rng.choice(VALUES)
    checkpoint.write(path, tensors, facts)  # by whoever knows how to
    return True


def go_on(seed: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "state.ckpt"
        other_numbers = attacked(seed, path)
        try:
            found = outcome(Training(CONFIGS, "cpu", path))
        except (ValueError, OSError) as error:
            said = str(error)
            assert said.startswith(f"{path}: "), said
            assert "\n" not in said
            return "refused"
        if other_numbers:
            assert found[0].keys() == undisturbed()[0].keys()
        else:
            assert found == undisturbed()
        return "gone on from"


def test_every_file_is_gone_on_from_or_refused() -> None:
    outcomes = within_limits(go_on, range(CASES), seconds=20)
    assert not failures(outcomes)
    refused = [one.value for one in outcomes].count("refused")
    assert CASES * 0.8 < refused < CASES


@pytest.mark.parametrize("what", ["folder", "pipe", "link"])
def test_what_is_no_file(what: str, tmp_path: Path) -> None:
    path = tmp_path / "state.ckpt"
    said = {"folder": "it is a folder", "pipe": "it is a pipe", "link": "a link to nowhere"}[what]
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    with pytest.raises((ValueError, OSError), match=rf"state\.ckpt: .*{said}"):
        Training(CONFIGS, "cpu", path).run()


def test_a_header_that_claims_more_than_there_is(tmp_path: Path) -> None:
    """10^12 numbers, in a file of some bytes: refused before memory is asked for."""
    facts = json.dumps({"runs": [config.identity for config in CONFIGS]})
    tensor: dict[str, Any] = {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 4 * 10**12]}
    path = tmp_path / "state.ckpt"
    path.write_bytes(join_safetensors({"__metadata__": {"facts": facts}, "x": tensor}, b"1234"))
    with pytest.raises(ValueError, match=r"state\.ckpt: damaged"):
        Training(CONFIGS, "cpu", path).run()
