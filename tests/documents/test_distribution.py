"""What a release holds: the library whole, and nothing that only its developers need."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from repository import ROOT


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.mark.slow  # both are built; what may be imported is held by tests/test_architecture.py
def test_the_wheel_holds_the_library_alone(distributions: Path) -> None:
    [wheel] = distributions.glob("setwise-*-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "setwise", "setwise_command.py",
    }  # fmt: skip
    sources = [path for path in (ROOT / "src").rglob("*") if path.is_file()]
    expected = {path.relative_to(ROOT / "src").as_posix() for path in sources}
    expected = {name for name in expected if "__pycache__" not in name and "egg-info" not in name}
    assert expected <= names
    assert "setwise/py.typed" in names


@pytest.mark.slow  # as above
def test_the_source_distribution_can_be_tested(distributions: Path) -> None:
    [archive] = distributions.glob("setwise-*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    needed = "Makefile constraints.txt CITATION.cff .ci/run tests/conftest.py tools/headline.py "
    needed += "docs/api.md results/table1.jsonl"
    assert not set(needed.split()) - names
    assert not any(name.startswith((".venv", "runs/", "site/")) for name in names)


def test_the_citation_names_this_version() -> None:
    from setwise import __version__

    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
