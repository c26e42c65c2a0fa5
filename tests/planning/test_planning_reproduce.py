"""``setwise reproduce table5`` as far as nothing is trained: what it refuses and takes."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from setwise import cli
from setwise.cli import plans
from setwise.experiments import checkpoint, store
from setwise.experiments.config import Config
from setwise.experiments.recipes import table1, table5
from setwise.experiments.records import SCHEMA
from setwise.experiments.train import StoppedError, Training

Captured = pytest.CaptureFixture[str]
SH, A1H = "set_cross_entropy", "set_average"


@pytest.mark.parametrize(
    "options",
    [
        *(["--facts", "x.pl"], ["--relation", "near"], ["--rule", "a(X) :- b(X)"]),
        *(["--symmetric", "near"], ["--clauses", "5", "5"], ["--cost"], ["--keep", "none"]),
        *(["--keep", "all"], ["--tensorboard", "logs"], ["--epochs", "3"]),
    ],
)
def test_options_of_other_tables_are_refused(options: list[str], capsys: Captured) -> None:
    assert cli.main(["reproduce", "table5", "--preset", "quick", *options]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"{options[0]}: not for table5, ")
    assert said.err.count("\n") == 1
    assert not said.out


def test_ctrl_c_in_training(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(training: Training, watch: Any, stop: Callable[[], bool]) -> None:
        assert training._save_every == 7.0
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        raise StoppedError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Training, "run", interrupted)
    command = ["reproduce", "table5", "--preset", "quick", "--save-every", "7"]
    assert cli.main(command) == 130
    assert "stopped, the training is saved; to go on: setwise" in capsys.readouterr().err


def accept(configs: Sequence[Config]) -> None:
    """All of them, whatever is recorded."""


def test_the_paper_takes_what_was_kept_of_table1(tmp_path: Path, capsys: Captured) -> None:
    """Whatever the files are called; other scenarios, losses and seeds are left aside."""
    kept = {
        "wanted": table1.paper("4", SH, 3),
        "too": table1.paper("4", A1H, 0),
        "other-scenario": table1.paper("3", SH, 3),
        "other-loss": table1.paper("4", "ordered_cross_entropy", 3),
        "other-size": table1.quick("4", SH, 3),
    }
    for name, config in kept.items():
        path = tmp_path / "table1" / f"{name}.safetensors"
        checkpoint.write(
            path, {"x": torch.zeros(1)}, {"schema": SCHEMA, "config": config.as_dict()}
        )
    options = argparse.Namespace(
        preset="paper",
        runs=tmp_path,
        results=tmp_path / "results",
        seeds=None,
        losses=None,
    )
    found = plans._networks(options, [table5.PAPER["puzzle-7"]], (), accept)
    assert [(path.stem, config) for path, config in found] == [
        ("wanted", kept["wanted"]),
        ("too", kept["too"]),
    ]
    # What is not kept is said, with the commands that train it.
    command = "setwise reproduce table1 --scenarios 4 --losses {} --seeds {} --keep all --runs"
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("left out, not kept: SH, seeds 0,1,2,4,5,6,7,8,9; train with ")
    assert command.format("SH", "0,1,2,4,5,6,7,8,9") in first
    assert command.format("A1H", "1,2,3,4,5,6,7,8,9") in second
    assert shlex.split(second)[-2:] == ["--results", str(tmp_path / "results")]
    # Records that are there would keep it from being trained.
    lost = {"schema": SCHEMA, "config": table1.paper("4", SH, 5).as_dict()}
    store.append(tmp_path / "results" / "table1.jsonl", [lost])
    plans._networks(options, [table5.PAPER["puzzle-7"]], (), accept)
    first = capsys.readouterr().err.splitlines()[0]
    assert shlex.split(first)[-2:] == ["--results", str(tmp_path / "records")]
    options.seeds = [3]
    found = plans._networks(options, [table5.PAPER["puzzle-7"]], (), accept)
    assert [path.stem for path, _ in found] == ["wanted"]


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The records of this repository for Table 5, in a folder with nothing else."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(Path(__file__).parents[2] / "results", "results")
    return tmp_path / "results" / "table5.jsonl"


def test_what_is_recorded_needs_no_pictures_and_no_networks(
    records: Path, capsys: Captured
) -> None:
    """The records of this repository are those of the recipe as it is."""
    before = records.read_text()
    command = ["reproduce", "table5", "--losses", "SH", "--device", "cpu"]
    assert cli.main(command) == 0
    said = capsys.readouterr()
    every = ", ".join(f"SH {seed}" for seed in range(10))
    for table in ("table1", "networks5"):
        assert f"already planned with networks of {table}: {every}\n" in said.err
    assert "drawing" not in said.err
    assert "Blocksworld" in said.out
    assert records.read_text() == before
    # A scenario that is not recorded of a network is left.
    records.write_text(
        "".join(line for line in before.splitlines(keepends=True) if '"puzzle-7"' not in line)
    )
    assert cli.main([*command, "--scenarios", "puzzle-7"]) == 2
    assert "holds no network to plan in the puzzle with" in capsys.readouterr().err
    assert cli.main([*command, "--scenarios", "puzzle-14"]) == 0


def test_records_of_other_pictures_are_refused_before_anything_is_trained(
    records: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New runs beside them would make no table."""
    before = records.read_text()

    def other_pictures(configs: Sequence[Config], *rest: Any) -> list[Config]:
        return [replace(config, data=replace(table5.BLOCKS, sha256="f" * 64)) for config in configs]

    monkeypatch.setattr(plans, "with_pictures", other_pictures)
    command = ["reproduce", "table5", "--scenarios", "blocks-3", "--device", "cpu"]
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert "table5: runs of set_cross_entropy in scenario blocks-3 differ in" in said
    assert "epoch" not in said
    assert records.read_text() == before


def test_what_is_no_record_is_told_with_its_line(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").mkdir()
    for table, line in (("table1", '{"x": 1}'), ("table3", "[1]"), ("table5", '{"x": 1}')):
        file = tmp_path / "results" / f"{table}.jsonl"
        file.write_text(f"{line}\n")
        assert cli.main(["reproduce", table, "--device", "cpu"]) == 2
        assert f"{file.relative_to(tmp_path)}, line 1: not a record: " in capsys.readouterr().err
        file.unlink()
