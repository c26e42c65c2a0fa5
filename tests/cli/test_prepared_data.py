"""Data that are files: made by a command where they are missing, and told from others of a name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from rich.console import Console

from setwise.cli.errors import CommandError
from setwise.cli.pictures import with_pictures
from setwise.experiments import DataConfig, Task
from setwise.experiments.config import Config
from tiny_experiments import puzzle_config

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Counted(DataConfig):
    """Somebody's own, which is in no list of ours: a file of so many lines."""

    kind: ClassVar[str] = "counted, for a test"
    lines: int = 3
    sha256: str = ""

    def load(self, folder: Path = Path(), device: torch.device = CPU) -> Task:
        raise NotImplementedError

    def preparation(self, folder: Path = Path()) -> str | None:
        return None if (folder / "lines").exists() else f"counting to {self.lines} in {folder}"

    def prepare(self, folder: Path, progress: Callable[[int, int], None]) -> None:
        if self.lines > 5:
            raise ValueError("lines: can only count to 5")
        (folder / "lines").write_text("".join(f"{n}\n" for n in range(self.lines)))
        progress(self.lines, self.lines)

    def bound(self, folder: Path = Path()) -> DataConfig:
        content = (folder / "lines").read_bytes()
        return replace(self, sha256=hashlib.sha256(content).hexdigest())

    def unbound(self) -> DataConfig:
        return replace(self, sha256="")


def configs(data: DataConfig) -> list[Config]:
    return [replace(puzzle_config(seed=seed), data=data) for seed in (0, 1)]


def bound(data: DataConfig, folder: Path, done: list[Config]) -> tuple[set[DataConfig], str]:
    """The data that configs are bound to, and what is said of it."""
    console = Console(record=True, width=200)
    found = with_pictures(configs(data), folder, console, done)
    assert [config.seed for config in found] == [0, 1]
    return {config.data for config in found}, console.export_text()


def test_they_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [first], said = bound(Counted(), tmp_path, [])
    assert said.startswith(f"counting to 3 in {tmp_path}\n")
    assert "3 of 3" in said
    assert isinstance(first, Counted)
    assert len(first.sha256) == 64
    [again], said = bound(Counted(), tmp_path, [])
    assert again == first
    assert said == ""


def test_where_everything_is_done_they_are_not_needed(tmp_path: Path) -> None:
    theirs = replace(Counted(), sha256="f" * 64)
    [found], said = bound(Counted(), tmp_path, configs(theirs))
    assert found == theirs
    assert said == ""
    assert list(tmp_path.iterdir()) == []
    # Not if one is left to be done, nor if those that are done were of other settings.
    for done in (configs(theirs)[:1], configs(replace(theirs, lines=4))):
        [found], said = bound(Counted(), tmp_path, done)
        assert found != theirs
        (tmp_path / "lines").unlink()


def test_what_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"^lines: can only count to 5$"):
        bound(Counted(lines=6), tmp_path, [])


def test_of_most_data_nothing_is_to_be_done(tmp_path: Path) -> None:
    data = puzzle_config().data
    assert data.preparation(tmp_path) is None
    assert bound(data, tmp_path, []) == ({data}, "")
    with pytest.raises(NotImplementedError, match="PuzzleData: define prepare"):
        data.prepare(tmp_path, lambda there, wanted: None)
