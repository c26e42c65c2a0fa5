"""Terminals, pipes and signals as they come, and numbers that nobody can mean."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from repository import ROOT
from setwise import cli
from setwise.cli import doctor, installed, streams
from setwise.cli.installed import Requirement
from setwise.planning.instances import problems_for
from setwise.worlds import PuzzleWorld

Captured = pytest.CaptureFixture[str]


def test_walks_that_no_world_has_room_for() -> None:
    with pytest.raises(ValueError, match="steps: expected at most 10000, got 100000"):
        problems_for(PuzzleWorld(2, 2), steps=100_000, count=1, seed=0)
    with pytest.raises(ValueError, match="found no more than 0 distinct problems of 5000 steps"):
        problems_for(PuzzleWorld(2, 2), steps=5000, count=1, seed=0)


@pytest.mark.parametrize("program", ["false", "true", "echo"])
def test_a_program_that_is_no_blender(program: str, tmp_path: Path, capsys: Captured) -> None:
    options = ["--renderer", "blender", "--blender", f"/bin/{program}", "--states", "2"]
    assert cli.main(["data", "blocksworld", *options, "--output", str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert f"/bin/{program} is no Blender: asked for its version, it ended with code" in said
    assert said.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_name_in_an_error_commands_no_terminal(capsys: Captured) -> None:
    assert cli.main(["train", "\x1b[2J.py"]) == 2
    assert capsys.readouterr().err == "FILE.py: expected a file, \\x1b[2J.py is not there\n"


def test_terminals_without_unicode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they cannot show is a question mark, and afterwards they are as they were."""
    (tmp_path / "ä.pl").write_text("near(ä,ö).\n", encoding="utf-8")
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert cli.main(["rules", "count", "--facts", str(tmp_path / "ä.pl")]) == 0
    assert cli.main(["rules", "count", "--facts", "ö"]) == 2
    assert b"?.pl: 2 constants; near: 1 facts" in out.buffer.getvalue()  # type: ignore[attr-defined]
    assert b"'?'" in err.buffer.getvalue()  # type: ignore[attr-defined]
    assert out.errors == err.errors == "strict"


def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    import warnings

    with streams.any_text_and_one_line_warnings():
        text = warnings.formatwarning("left out:\x1b it", UserWarning, "file.py", 3)
    assert text == "left out:\\x1b it\n"
    assert "file.py" in warnings.formatwarning("it", UserWarning, "file.py", 3)


def test_a_missing_package_is_advised_by_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Not by the command's own, which may be all there and lack it."""
    known = [Requirement("pillow", "10", "render"), Requirement("safetensors", "0.4", "planning")]
    monkeypatch.setattr(installed, "requirements", lambda: known)
    assert installed.extra_with("safetensors", "render") == "planning"
    assert installed.extra_with("PIL", "render") == "render"
    assert installed.extra_with("drjit", "render") == "render"  # which another package brings

    def needing(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'safetensors'", name="safetensors")

    monkeypatch.setattr(doctor, "check_core", needing)
    assert cli.main(["doctor", "--json"]) == 2
    assert "[planning]" in capsys.readouterr().err


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHON": sys.executable}
    environment.pop("PYTHONUNBUFFERED", None)  # argparse passes over what it cannot write at once
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=environment
    )


# Slow: processes. test_cli_errors.py has a pipe that nobody reads in the first tier.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("$PYTHON -m setwise.cli --help | true; exit ${PIPESTATUS[0]}", 141),
        ("$PYTHON -m setwise.cli train none.py 2>&1 >&- | true; exit ${PIPESTATUS[0]}", 141),
        ("$PYTHON -m setwise.cli rules count --json >&-", 0),
        ("LANG=C PYTHONIOENCODING=ascii $PYTHON -m setwise.cli tables --results results", 0),
    ],
    ids=["help", "errors", "no output at all", "ascii"],
)
def test_output_that_goes_nowhere(command: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "results").symlink_to(ROOT / "results")
    ended = shell(command, tmp_path)
    assert ended.returncode == code, ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Exception ignored" not in ended.stderr


# Slow: a process, which imports PyTorch. Nothing else starts the command by this module.
@pytest.mark.slow
@pytest.mark.parametrize("moment", ["setwise", "torch.nn", "setwise.cli.tables"])
def test_interrupted_while_it_imports(moment: str, tmp_path: Path) -> None:
    code = f"""
import os, signal, sys
import setwise_command

class Pressed:
    def find_spec(self, name, path=None, target=None):
        if name == {moment!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Pressed())
sys.argv = ["setwise", "rules", "count"]
sys.exit(setwise_command.main())
"""
    (tmp_path / "code.py").write_text(code)
    ended = shell("$PYTHON code.py", tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "stopped\n")
