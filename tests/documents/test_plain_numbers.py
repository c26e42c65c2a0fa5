"""The benchmark of plain numbers on a CPU, its table, and what documents say of its record."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tools.kernels import PLAIN_NUMBERS
from tools.plain_numbers import plain_numbers

from repository import ROOT

SCRIPT = ROOT / "benchmarks" / "plain_numbers.py"


def record() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "benchmarks/records" / PLAIN_NUMBERS).read_text())
    return found


def test_the_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(SCRIPT))
    monkeypatch.setitem(script["measurements"].__globals__, "SHAPES", [(3, 4, 5), (2, 12, 12)])
    monkeypatch.setitem(script["beside"].__globals__, "CALLS", 1)
    output = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", ["x", "--commit", "c0ffee", "--output", str(output)])
    script["main"]()
    made = json.loads(output.read_text())
    assert made["header"]["commit"] == "c0ffee"
    solved = [(row["solver"], row["shape"][1]) for row in made["rows"] if not row["confident"]]
    small = [(solver, 4) for solver in script["SOLVERS"]]
    assert solved == [*small, *((solver, 12) for solver, _ in small[1:])]
    assert all(row["apart"] < 1e-4 for row in made["rows"])
    text = plain_numbers(made)
    assert text.count("\n| (2, 12, 12) | ") == 3
    assert "commit c0ffee" in text


def test_scores_are_of_outputs_that_are_what_they_should_be() -> None:
    script = runpy.run_path(str(SCRIPT))
    scores = script["scores_of"](20, 6, 9, True)
    assert (scores.argmax(2) == torch.arange(6)).double().mean() > 0.6
    assert scores.shape == (20, 6, 9)


def test_what_documents_say_of_it() -> None:
    """A part of the time, a fifth and less of sets of 300; and what settled is the same."""
    rows = record()["rows"]
    faster = {
        (row["solver"], tuple(row["shape"]), row["confident"]): row["logarithms_ms"]
        / row["plain_ms"]
        for row in rows
    }
    assert min(faster.values()) > 1.0
    large = [f for (s, shape, _), f in faster.items() if s == "Bethe" and shape == (16, 300, 300)]
    assert min(large) >= 5
    assert all(row["apart"] is None or row["apart"] < 1e-4 for row in rows)
