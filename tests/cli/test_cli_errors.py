"""Every command helps: its help says what it does, and what is wrong is told in one line."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from setwise import __version__, cli
from setwise.cli import doctor, installed
from setwise.cli.options import require_folder

Captured = pytest.CaptureFixture[str]


def parsers(
    parser: argparse.ArgumentParser | None = None,
) -> Iterator[argparse.ArgumentParser]:
    """The parser of every command, the outermost first."""
    parser = parser or cli.command_line()
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def words(parser: argparse.ArgumentParser) -> list[str]:
    """What is typed for a command, after ``setwise``; with what it cannot do without."""
    needed = {
        "setwise actions learn": ["steps.jsonl", "-o", "domain.pddl"],
        "setwise actions plan": ["steps.jsonl", "problem.json"],
        "setwise actions record": ["puzzle", "-o", "steps.jsonl"],
        "setwise actions see": ["states.npz", "-o", "seen.jsonl"],
        "setwise data clevr": ["images", "scenes.json"],
        "setwise new": ["rooms"],
        "setwise plan": ["puzzle"],
        "setwise predict": ["network.safetensors", "rows.jsonl"],
        "setwise reproduce": ["table1"],
        "setwise rules ask": ["neighbor2(a,b,c)"],
        "setwise train": ["mine.py"],
    }
    return [*parser.prog.split()[1:], *needed.get(parser.prog, [])]


ALL = list(parsers())
LEAVES = [one for one in ALL if not any(other.prog.startswith(f"{one.prog} ") for other in ALL)]


def test_all_commands_are_known_here() -> None:
    assert {one.prog.split()[1] for one in LEAVES} == {
        *("actions", "bench", "data", "demo", "doctor", "new", "plan", "predict", "report"),
        *("reproduce", "rules", "tables", "train"),
    }


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.prog)
def test_help(
    parser: argparse.ArgumentParser, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        cli.main([*parser.prog.split()[1:], "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr()
    assert said.out.startswith(f"usage: {parser.prog} ")
    assert not said.err
    assert parser.description
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            assert action.help, f"{parser.prog} {action.dest} is not explained"


@pytest.mark.parametrize("parser", ALL, ids=lambda parser: parser.prog)
def test_an_unknown_option(parser: argparse.ArgumentParser, capsys: Captured) -> None:
    """The message names the help of that very command."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*words(parser), "--no-such-option"])
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1
    assert said.err.startswith(f"{parser.prog}: error: ")
    assert said.err.endswith(f"; see {parser.prog} --help\n")
    if parser in LEAVES:
        assert "unknown: --no-such-option" in said.err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "the following arguments are required: COMMAND; see setwise --help"),
        ("frobnicate", "invalid choice: 'frobnicate' (choose from "),
        ("--no-such-option doctor", "setwise: error: unknown: --no-such-option; see setwise"),
        ("bench", "setwise bench: error: the following arguments are required: subject"),
        ("demo --seed -1", "argument --seed: expected a whole number such as 0 or 7, got '-1'"),
        ("demo --seed x", "argument --seed: expected a whole number"),
        (f"demo --seed {2**63}", f"argument --seed: expected a seed below 2**63, got {2**63}"),
        (f"plan puzzle --seed {2**64}", "argument --seed: expected a seed below 2**63"),
        ("plan puzzle --seconds nan", "--seconds: expected a number above 0, got 'nan'"),
        ("plan puzzle --seconds soon", "--seconds: expected a number above 0, got 'soon'"),
        ("plan puzzle --memory-mb 0", "--memory-mb: expected a whole number such as 1 or 7"),
        ("data blocksworld --states 0", "expected a number of states or all, got '0'"),
        ("reproduce table1 --seeds 0-99999999999", "expected at most 10000 seeds, got 0-9999"),
        (f"reproduce table1 --seeds {2**63}", "expected seeds below 2**63"),
        ("reproduce table1 --save-every nan", "expected a number, 0 or above, got 'nan'"),
        ("reproduce table1 --save-every -1", "expected a number, 0 or above, got '-1'"),
        ("train mine.py --save-every inf", "expected a number, 0 or above, got 'inf'"),
        ("doctor --\x1b[2J", r"unknown: --\x1b[2J"),
    ],
)
def test_wrong_words(typed: str, said: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(typed.split())
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("demo --output file", "--output: expected a folder, file is a file"),
        ("demo --output file/within", "file is a file"),
        ("plan puzzle --network .", "--network: expected a file, . is a folder"),
        ("plan puzzle --network none", "--network: expected a file, none is not there"),
        ("plan puzzle --heuristic ''", "--heuristic: expected a name such as blind, got nothing"),
        ("plan puzzle --output file", "--output: expected a folder, file is a file"),
        ("plan puzzle --record file", "--record: expected a folder, file is a file"),
        ("report --results . --output .", "--output: expected the name of a file, . is a folder"),
        ("report --results none", "--results: there is no folder none"),
        ("reproduce table1 --results file", "--results: expected a folder, file is a file"),
        ("reproduce table5 --runs file", "--runs: expected a folder, file is a file"),
        ("rules ask neighbor2(a,b,c) --network .", "--network: expected a file, . is a folder"),
        ("train none.py", "FILE.py: expected a file, none.py is not there"),
        ("train .", "FILE.py: expected a file, . is a folder"),
        ("rules count --facts none", "--facts: [Errno 2] No such file or directory: 'none'"),
        ("bench losses --shapes none", "--shapes: unknown none; known: few, "),
        ("bench losses --output .", "--output: expected the name of a file, . is a folder"),
        ("bench losses --output file/x.json", "--output: expected a folder, file is a file"),
        ("bench losses --plot file/x.png", "--plot: expected a folder, file is a file"),
        ("bench losses --plot x.jpeg", "--plot: expected a name that ends in .png, got x.jpeg"),
    ],
)
def test_files_and_names(
    typed: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("no folder")
    assert cli.main([word.replace("''", "") for word in typed.split()]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_no_gpu(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    for command in (["bench", "losses"], ["reproduce", "table1"]):
        assert cli.main([*command, "--device", "cuda"]) == 2
        said = capsys.readouterr().err
        assert said == "--device: PyTorch finds no CUDA device here; take cpu or auto\n"


def test_what_cannot_be_written_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Whichever command it is, and wherever it happens."""

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(doctor, "check_core", full)
    assert cli.main(["doctor", "--json"]) == 2
    assert capsys.readouterr().err == "[Errno 28] No space left on device: 'somewhere'\n"


def test_a_folder_that_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_folder("--output", tmp_path / "new" / "newer")
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(cli.CommandError, match="is not writable; choose another folder"):
        require_folder("--output", tmp_path / "new")


@pytest.mark.slow  # each is a process
@pytest.mark.parametrize("typed", ["rules count --json", "rules count"])
def test_nobody_reads_on(typed: str, tmp_path: Path) -> None:
    """As after ``setwise rules count --json | head``, which has seen enough."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "setwise.cli", *typed.split()],
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
    finally:
        os.close(writing)
    assert ended.stderr == b""
    assert ended.returncode == 141


# Slow: a process. test_what_cannot_be_written_is_no_traceback has a full disk in this one.
@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "setwise.cli", "rules", "count", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path,
        )
    assert b"No space left on device" in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert ended.returncode != 0


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        (None, "-m pip install 'setwise[planning]'"),
        ('{"url": "file:///clone", "dir_info": {}}', "-m pip install '/clone[planning]'"),
    ],
    ids=["from PyPI", "from a clone"],
)
def test_a_missing_extra_fits_the_installation(
    source: str | None, ending: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Whether a command says so itself, or a part of the library that knows no command."""
    package = SimpleNamespace(read_text=lambda _: source)
    monkeypatch.setattr(installed, "distribution", lambda _: package)

    def needing(error: Exception) -> Callable[..., None]:
        def check(*_: object) -> None:
            raise error

        return check

    ways: list[Exception] = [
        ModuleNotFoundError("no PIL: pip install 'setwise[planning]'", name="PIL"),
        cli.CommandError("planning needs a planner: pip install 'setwise[planning]'"),
    ]
    for way in ways:
        monkeypatch.setattr(doctor, "check_core", needing(way))
        assert cli.main(["doctor", "--json"]) == 2
        assert capsys.readouterr().err.endswith(f"{ending}\n")


def test_ctrl_c_anywhere(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "check_core", pressed)
    assert cli.main(["doctor", "--json"]) == 130
    assert capsys.readouterr().err == "stopped\n"


def test_version(capsys: Captured) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"setwise {__version__}\n"


def test_a_bug_is_no_wrong_option(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that no extra brings, or an error of ours, is shown as what it is."""
    monkeypatch.setitem(sys.modules, "setwise.report.page.report", None)
    with pytest.raises(ModuleNotFoundError, match=r"setwise\.report\.page\.report"):
        cli.main(["report", "--results", "."])
