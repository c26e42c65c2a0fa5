"""What make would do, by the state of the environment that it finds; nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from programs import program
from repository import ROOT

CLEAR = "-m venv --clear .venv"
# Run before what a Python is asked to run: it takes another for itself.
STATES = {
    "good": "sys.modules['pip'] = sys; sys.version_info = (3, 11, 7)",
    "newer": "sys.modules['pip'] = sys; sys.version_info = (3, 12, 0)",
    "too old": "sys.modules['pip'] = sys; sys.version_info = (3, 10, 9)",
    "without pip": "sys.modules['pip'] = None; sys.version_info = (3, 11, 7)",
    "broken": "sys.exit(1)",
}

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")


def python(path: Path, state: str) -> Path:
    """A program that understands ``-c CODE``."""
    code = f"import sys; {STATES[state]}; exec(sys.argv[1])"
    return program(path, f'#!/bin/sh\nexec {sys.executable} -c "{code}" "$2"\n')


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Without what a make that runs these tests, or their user, has set."""
    ours = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    for name in ("PYTHON", "MFLAGS", "WORKERS"):
        ours.pop(name, None)
    return subprocess.run(["make", *words], cwd=folder, env=ours, capture_output=True, text=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What make looks at, with everything installed."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    python(tmp_path / ".venv" / "bin" / "python", "good")
    for name in (".installed", ".installed-demo"):
        (tmp_path / ".venv" / name).touch()
    return tmp_path


@pytest.mark.parametrize("target", ["demo", "report"])
def test_what_is_installed_stays(target: str, clone: Path) -> None:
    assert make(clone, "-n", target).stdout == f".venv/bin/setwise {target}\n"


@pytest.mark.parametrize("target", ["demo", "report", "test", "test-all"])
@pytest.mark.parametrize("state", ["too old", "without pip", "broken"])
def test_what_will_not_do_is_made_anew(state: str, target: str, clone: Path) -> None:
    """All in its order, with the hint before anything that takes long."""
    python(clone / ".venv" / "bin" / "python", state)
    done = make(clone, "-n", target).stdout
    extra = "dev" if target.startswith("test") else "demo"
    hint = f"make {target} PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
    install = f"-m pip install --constraint constraints.txt --editable '.[{extra}]'\n"
    places = [done.find(words) for words in (f"python3 {CLEAR}", hint, "pip install", install)]
    assert -1 not in places
    assert places == sorted(places)


def test_a_first_time(clone: Path) -> None:
    shutil.rmtree(clone / ".venv")
    assert CLEAR in make(clone, "-n", "demo").stdout


def test_an_environment_is_made_once(clone: Path) -> None:
    shutil.rmtree(clone / ".venv")
    assert make(clone, "-n", "demo", "report", "test").stdout.count(CLEAR) == 1


@pytest.mark.parametrize(("state", "anew"), [("good", False), ("newer", True)])
def test_the_python_that_was_asked_for(state: str, anew: bool, clone: Path) -> None:
    other = python(clone / "other", state)
    assert (f"{other} {CLEAR}" in make(clone, "-n", "demo", f"PYTHON={other}").stdout) == anew


def test_a_python_that_is_too_old_clears_nothing(clone: Path) -> None:
    old = python(clone / "old", "too old")
    ended = make(clone, "demo", f"PYTHON={old}")
    assert ended.returncode != 0
    assert f"{old}: expected Python 3.11 or newer; name one" in ended.stdout
    assert (clone / ".venv" / ".installed").exists()


@pytest.mark.parametrize(("target", "selection"), [("test", ' -m "not slow"'), ("test-all", "")])
def test_the_tiers(target: str, selection: str, clone: Path) -> None:
    """They differ in what they select alone."""
    shared = "-m pytest -n 2 --dist worksteal --durations=20"
    python = "env -u PYTHONDONTWRITEBYTECODE .venv/bin/python"
    assert make(clone, "-n", target).stdout == f"{python} {shared}{selection}\n"


@pytest.mark.parametrize("target", ["test", "test-all"])
@pytest.mark.parametrize("status", [0, 1])
def test_a_failure_is_passed_on(status: int, target: str, clone: Path) -> None:
    found = clone / ".venv" / "bin" / "python"
    honest = found.rename(found.with_name("honest"))
    program(found, f'#!/bin/sh\n[ "$1" = -c ] && exec {honest} "$@"\nexit {status}\n')
    assert (make(clone, target).returncode != 0) == bool(status)


@pytest.mark.parametrize("failing", ["", "check", "demo", "test-all"])
def test_what_must_hold_before_a_change_lands(failing: str, clone: Path) -> None:
    """All tests, not the first tier alone, and none may be skipped for want of a program."""
    (clone / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", clone / ".ci")
    for name in ("blender", "chromium"):
        program(clone / "bin" / name, "#!/bin/sh\n")
    made = clone / "made"
    script = f'#!/bin/sh\necho "$SETWISE_TEST_EVERYTHING $*" >> {made}\n'
    program(clone / "bin" / "make", f'{script}case " $* " in *" {failing} "*) exit 2; esac\n')
    settings = os.environ | {"PATH": f"{clone / 'bin'}:{os.environ['PATH']}"}
    ended = subprocess.run([clone / ".ci" / "run"], env=settings, check=False)
    assert (ended.returncode != 0) == bool(failing)
    install, *commands = made.read_text().splitlines()
    assert install == "1 .venv/.installed"  # once: what follows is done side by side
    words = {word for command in commands for word in command.split()}
    assert {"check", "demo"} <= words
    assert ("1 test-all" in commands) == (failing in ("", "test-all"))


def test_clean(clone: Path) -> None:
    for name in ("demo/index.html", "report.html", "src/__pycache__/x.pyc", "runs/kept"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).touch()
    rooms = {"tests", "tools", "docs", "benchmarks", "examples", "studies"}
    for name in rooms:
        (clone / name).mkdir()
    assert make(clone, "clean").returncode == 0
    left = {path.name for path in clone.iterdir()} - rooms
    assert left == {"Makefile", "constraints.txt", "pyproject.toml", "runs", "src"}
    assert not list((clone / "src").iterdir())
