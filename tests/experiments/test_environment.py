"""Where a result comes from: the commit that its record names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from setwise import environment


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a package that has been committed, in the place of ours."""
    folder = tmp_path / "src" / "setwise"
    folder.mkdir(parents=True)
    (folder / "environment.py").write_text("as it is committed\n")
    monkeypatch.setattr(environment, "__file__", str(folder / "environment.py"))
    git(tmp_path, "init", "--quiet")
    return folder


def commit(package: Path) -> str:
    git(package, "add", ".")
    git(package, "commit", "--quiet", "--message", "all of it")
    return git(package, "rev-parse", "HEAD")


def test_a_clean_package_has_its_commit(package: Path) -> None:
    assert environment.current_commit() is None  # it belongs to none yet
    made = commit(package)
    assert environment.current_commit() == made


@pytest.mark.parametrize("name", ["environment.py", "new.py"])
def test_changed_code_is_marked(package: Path, name: str) -> None:
    made = commit(package)
    (package / name).write_text("something else\n")
    assert environment.current_commit() == f"{made}-dirty"


def test_records_do_not_make_their_own_code_another(package: Path) -> None:
    made = commit(package)
    results = package.parents[1] / "results"
    results.mkdir()
    (results / "table1.jsonl").write_text("{}\n")
    assert environment.current_commit() == made
