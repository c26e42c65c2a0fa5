"""Folders of plans: whole or as they were, and nothing is removed but what a plan is made of."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from setwise.planning.recorded import check_place, write_plan

PICTURES = np.zeros((2, 4, 4, 3), np.uint8)


def add_notes(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")


def add_folder(folder: Path) -> None:
    (folder / "other-plan").mkdir()


def remove_plan(folder: Path) -> None:
    (folder / "plan.json").unlink()


def put_link(folder: Path) -> None:
    folder.symlink_to(folder.rename(folder.with_name("elsewhere")))


def put_file(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    folder.write_text("mine")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("change", [add_notes, add_folder, remove_plan, put_link, put_file])
def test_what_is_no_plan_alone_stays(change: Callable[[Path], None], tmp_path: Path) -> None:
    folder = tmp_path / "a"
    write_plan(folder, PICTURES, ["0", "1"], {})
    change(folder)
    before = content(tmp_path)
    for act in (check_place, lambda place: write_plan(place, PICTURES, ["new", "new"], {})):
        with pytest.raises(ValueError, match=rf"{folder}: (is there already|holds more than)"):
            act(folder)
    assert content(tmp_path) == before


def test_what_comes_in_at_the_last_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a"
    write_plan(folder, PICTURES, ["old", "old"], {})
    rename, first = Path.rename, itertools.count()

    def late(self: Path, target: Path) -> Path:
        if next(first) == 0:
            add_notes(folder)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    with pytest.raises(ValueError, match=r"holds more than a plan, such as notes\.txt"):
        write_plan(folder, PICTURES, ["new", "new"], {})
    assert (folder / "notes.txt").read_text() == "mine"
    assert json.loads((folder / "plan.json").read_text()) == {"captions": ["old", "old"]}
    assert list(tmp_path.iterdir()) == [folder]


def test_a_plan_is_replaced_with_all_of_its_pictures(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    write_plan(folder, PICTURES, ["0", "1"], {})
    write_plan(folder, PICTURES[:1], ["0"], {})
    assert {path.name for path in folder.iterdir()} == {"plan.json", "00.png"}
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_plan_is_replaced_or_stays(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever renaming fails: that of what is there, or that of what is new."""
    kept, pictures = tmp_path / "plan", np.zeros((1, 4, 4, 3), np.uint8)
    write_plan(kept, pictures, ["old"], {})
    rename, count = Path.rename, itertools.count()

    def fail(self: Path, target: Path) -> Path:
        if next(count) == failing:
            raise OSError("Input/output error")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(OSError, match="Input/output error"):
            write_plan(kept, pictures, ["new"], {})
    assert json.loads((kept / "plan.json").read_text()) == {"captions": ["old"]}
    assert list(tmp_path.iterdir()) == [kept]
    write_plan(kept, pictures, ["new"], {})
    assert json.loads((kept / "plan.json").read_text()) == {"captions": ["new"]}
    assert list(tmp_path.iterdir()) == [kept]
