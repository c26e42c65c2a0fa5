"""One disturbance of a long command, then the same command to its end: the same bits.

Each case is one moment of one command. All of them take a quarter of an hour of a core, and so the
name of this file keeps them out of the suite, where ``test_kill.py`` and ``test_disk_full.py``
disturb a command again and again before it may end. To run them, or those of one command::

    pytest -v tests/attack/one_by_one.py
    pytest -v tests/attack/one_by_one.py -k "demo and kill"
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from attacked_commands import COMMANDS, Attacked, content
from killed import End, kill_once, run

KILLS, SIZES = 20, 10


@dataclass(frozen=True)
class Undisturbed:
    """A command that came to its end, and what it left."""

    name: str
    attacked: Attacked
    end: End
    left: dict[str, Any]
    largest: int  # bytes of a file that it wrote


@pytest.fixture(scope="module", params=COMMANDS)
def undisturbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Undisturbed:
    attacked = COMMANDS[request.param]
    folder = attacked.fresh(tmp_path_factory.mktemp("undisturbed"))
    given = set(folder.rglob("*"))
    end = run(attacked.command, folder)
    assert end.code in (0, 1), end.said
    made = [path for path in folder.rglob("*") if path not in given and path.is_file()]
    largest = max(path.stat().st_size for path in made)
    return Undisturbed(request.param, attacked, end, content(folder), largest)


def end_alike(disturbed: Path, undisturbed: Undisturbed) -> None:
    again = run(undisturbed.attacked.command, disturbed)
    assert again.code == undisturbed.end.code, again.said
    assert content(disturbed) == undisturbed.left
    shutil.rmtree(disturbed)


@pytest.mark.parametrize("moment", range(KILLS))
def test_a_kill(undisturbed: Undisturbed, moment: int, tmp_path: Path) -> None:
    attacked, rng = undisturbed.attacked, random.Random(f"{undisturbed.name} {moment}")
    fresh = lambda: attacked.fresh(tmp_path)  # noqa: E731
    end_alike(kill_once(attacked.command, fresh, undisturbed.end, rng), undisturbed)


@pytest.mark.parametrize("moment", range(SIZES))
def test_a_full_disk(undisturbed: Undisturbed, moment: int, tmp_path: Path) -> None:
    """At a size that leaves no room for one of the files, at least."""
    attacked, rng = undisturbed.attacked, random.Random(f"{undisturbed.name} {moment}")
    folder = attacked.fresh(tmp_path)
    end = run(attacked.command, folder, largest=int(undisturbed.largest * rng.random() ** 2))
    assert end.code == 2, end.said
    assert "File too large" in end.said.splitlines()[-1], end.said
    assert "Traceback" not in end.said
    assert not list(folder.rglob("*.unfinished"))
    end_alike(folder, undisturbed)
