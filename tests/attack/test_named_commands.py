"""Commands and calls: more of the cases of test_named_cases.py, which says what numbers mean.

Two of them are elsewhere: an extra that is alone in tests/cli/test_extras.py, and an interrupt
while the library is imported in tests/cli/test_outside_world.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import setwise as sw
from limits import FORKS, failures, within_limits
from programs import program
from setwise import cli
from setwise.experiments.saved_networks import save_network
from setwise.experiments.train import Training
from tiny_experiments import puzzle_config

pytestmark = pytest.mark.slow  # each kind is in the first tier, beside what it is about


@pytest.fixture
def network(tmp_path: Path) -> Path:
    save_network(tmp_path / "net", Training([puzzle_config()], "cpu"), 0)
    return tmp_path / "net"


def plan(network: Path, planner: Path, scratch: Path) -> None:
    """In a process of its own, which hears signals."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    tempfile.tempdir = str(scratch)
    os.chdir(network.parent)
    command = ["plan", "puzzle", "--network", str(network), "--downward", str(planner)]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        sys.exit(cli.main([*command, "--output", "out"]))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_6_a_planner_that_is_stopped(number: signal.Signals, network: Path, tmp_path: Path) -> None:
    scratch, begun = tmp_path / "scratch", tmp_path / "begun"
    scratch.mkdir()
    slow = program(tmp_path / "slow", f"#!/bin/sh\ntouch {begun}\nexec sleep 30\n")
    process = FORKS.Process(target=plan, args=(network, slow, scratch))
    process.start()
    while not begun.exists():
        assert process.is_alive()
        time.sleep(0.02)
    assert list(scratch.iterdir())
    assert process.pid is not None
    os.kill(process.pid, number)
    process.join()
    if number == signal.SIGKILL:  # then the next one cleans
        again = FORKS.Process(target=plan, args=(network, Path("/bin/false"), scratch))
        again.start()
        again.join()
    assert not list(scratch.iterdir())


def ends(words: list[str]) -> tuple[Any, str]:
    """The exit code of a command, and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            code: Any = cli.main(words)
        except SystemExit as ended:
            code = ended.code
    return code, out.getvalue() + err.getvalue()


@pytest.mark.parametrize(
    "words",
    [
        ["reproduce", "table1", "--seeds", "0-99999999999"],
        ["reproduce", "table1", "--save-every", "nan"],
        ["plan", "puzzle", "--network", "{network}", "--steps", "100000"],
        ["data", "blocksworld", "--renderer", "blender", "--blender", "/bin/false"],
    ],
    ids=["seeds", "save-every", "steps", "blender"],
)
def test_8_what_nobody_means(words: list[str], network: Path) -> None:
    typed = [word.format(network=network) for word in words]
    found = within_limits(ends, [typed], seconds=10, megabytes=500)
    assert not failures(found)
    code, said = found[0].value or (None, "")
    assert code == 2
    assert said.count("\n") == 1, said


def facts(folder: Path, text: str) -> Path:
    path = folder / "ä.pl"
    path.write_text(text, encoding="utf-8")
    return path


def test_8_a_terminal_without_unicode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert cli.main(["rules", "count", "--facts", str(facts(tmp_path, "near(ä,ö).\n"))]) == 0


def test_8_a_pipe_that_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        assert cli.main(["--help"]) == 141


@pytest.mark.parametrize("kind", ["nested", "sparse"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_8_tensors_that_are_no_arrays(kind: str) -> None:
    x = torch.rand(2, 3, 4)
    strange = {
        "nested": {"input": torch.nested.nested_tensor(list(x)), "target": x},
        "sparse": {"input": x, "target": x, "weight": torch.ones(2, 3).to_sparse()},
    }
    with pytest.raises(TypeError, match=f"expected a dense tensor, got .*{kind}"):
        sw.set_cross_entropy(**strange[kind])


def test_8_a_temperature_that_is_a_tensor() -> None:
    x, y = torch.rand(2, 3, 4), torch.randn(2, 3, 4)
    found = sw.set_cross_entropy(y, x, temperature=torch.tensor(1e-6))
    torch.testing.assert_close(found, sw.set_cross_entropy(y, x, temperature=1e-6))


def test_9_a_count_that_lists_nothing(tmp_path: Path) -> None:
    """The chains of 2000 facts over 100 constants took more than 9 GB."""
    pairs = [(i, (i * k + k) % 100) for i in range(100) for k in range(1, 21)]
    text = "".join(f"near(c{a},c{b}).\n" for a, b in dict.fromkeys(pairs) if a != b)
    command = ["rules", "count", "--facts", str(facts(tmp_path, text))]
    found = within_limits(ends, [command], seconds=20, megabytes=400)
    assert not failures(found)
    assert found[0].value is not None
    assert found[0].value[0] == 0
