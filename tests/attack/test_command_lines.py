"""Command lines of any kind: a command ends in time, and says in a line what is wrong."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from limits import failures, within_limits
from setwise import cli
from setwise.cli.starters import STARTERS
from setwise.experiments.saved_networks import save_network
from setwise.experiments.train import Training
from tiny_experiments import puzzle_config, rules_config

# Slow: 600 commands. tests/cli/test_cli_errors.py has the kinds of mistakes one by one.
pytestmark = pytest.mark.slow
CASES = 640

# Of places that are not ours, only such that nothing can be put there, though root runs the tests.
WORDS = [
    *("", " ", "-", "--", "-1", "0", "1", "7", "1.5", "-0", "nan", "inf", "1e400", "NaN", "1_000"),
    *("99999999999", "9" * 30, "9" * 5000, "0-99999999999", "5-1", "0,1,2", "1,", "٣", "²", "0x10"),
    *(".", "..", "/proc", "/dev/null", "/dev/zero", "/dev/full", "none", "folder", "file", "pipe"),
    *("loop", "nowhere", "bad.json", "bad.py", "folder/x", "file/x", "a" * 300, "x\ny", "\x1b[2J"),
    *("\udcff", "\x00", "ä", "½H", "SH", "H", "all", "auto", "cuda", "cpu", "puzzle", "table1"),
    *("table4", "quick", "paper", "neighbor2(austria,germany,belgium)", "neighbor2(", "a(b,c)"),
    *("uncle(X,Z) :- brother(X,Y)", "p(X) :- near(X,X)", "near", "facts", "--help", "--json"),
]
# Commands that work for long even if nothing is wrong; they are only given what is.
LONG = ("demo", "bench", "doctor")


# Made once: that takes longer than most of what is tried with it.
PARSER = cache(cli.command_line)


@cache
def leaves() -> list[argparse.ArgumentParser]:
    """The parsers of all commands that have no commands of their own."""

    def below(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
        inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if not inner:
            yield parser
        for action in inner:
            for one in action.choices.values():
                yield from below(one)

    return list(below(PARSER()))


def command(seed: int) -> list[str]:
    """A command with options of its own, and values that are mostly none for them."""
    rng = random.Random(seed)
    parser = rng.choices(leaves(), [1 if one.prog.split()[1] in LONG else 3 for one in leaves()])[0]
    typed = parser.prog.split()[1:]
    options = [a for a in parser._actions if a.option_strings and a.dest != "help"]
    for action in parser._actions:
        if not action.option_strings and rng.random() < 0.9:
            typed.append(rng.choice([*(action.choices or ()), *rng.choices(WORDS, k=2)]))
    for action in rng.choices(options, k=rng.randint(1, 4)) if options else []:
        typed.append(rng.choice(action.option_strings))
        if action.nargs != 0:
            known = list(action.choices or ())
            count = action.nargs if isinstance(action.nargs, int) else 1
            typed += [str(rng.choice([*known, *rng.choices(WORDS, k=3)])) for _ in range(count)]
    if typed[0] in LONG:
        typed.append("--" + rng.choice(["unknown", "x\ny", "\udcff"]))
    if typed[0] in ("reproduce", "train", "data"):  # refused before anything is trained or drawn
        typed += ["--blocks", "99"] if typed[0] == "data" else ["--losses", rng.choice(WORDS), "x"]
    if typed[0] == "plan" and rng.random() < 0.7:  # with a network that is there, so that it plans
        typed[1:2] = ["puzzle"]
        typed += ["--runs", "runs", "--network", "runs/tiny/good.safetensors"][: rng.choice([2, 4])]
    return typed


def make_folder() -> None:
    """Something to stumble over under each of the names."""
    STARTERS.clear()  # what is learned where no network is kept takes a minute
    inner = Path(tempfile.mkdtemp()) / "inner"  # so that .. is ours as well
    inner.mkdir()
    os.chdir(inner)
    Path("folder").mkdir()
    Path("folder/bad.safetensors").write_bytes(b"{}")
    Path("file").write_text("no folder")
    os.mkfifo("pipe")
    Path("loop").symlink_to("loop")
    Path("nowhere").symlink_to("missing")
    Path("bad.json").write_text("[" * 10**5)
    Path("bad.py").write_text("import sys\nsys.exit(3)\n")
    save_network(Path("runs/tiny/good.safetensors"), Training([puzzle_config()], "cpu"), 0)
    save_network(
        Path("runs/tiny/rules.safetensors"), Training([rules_config("4", "SH", 0)], "cpu"), 0
    )
    shutil.copy("folder/bad.safetensors", "runs/tiny/bad.safetensors")
    Path("facts").write_text("near(a,b).\nnear(b,c).\nnear(c,a).\n")


def attempt(case: int) -> tuple[Any, str]:
    if not Path("facts").exists():
        make_folder()
    return run(command(case))


def run(typed: list[str]) -> tuple[Any, str]:
    """The exit code, and what was said; nothing may have been raised but an exit."""
    out, err = io.StringIO(), io.StringIO()
    parsed = patch.object(cli, "command_line", PARSER)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), parsed:
        try:
            code: Any = cli.main(typed)
        except SystemExit as ended:
            code = ended.code
    said = err.getvalue()
    assert "Traceback" not in said, said
    assert code in (0, 1, 2), (code, typed)
    if code == 2:
        assert said.strip(), typed
    sys.modules.pop("bad", None)
    return code, said


def test_every_command_line_ends_with_a_word() -> None:
    found = within_limits(attempt, range(CASES), seconds=60, megabytes=1500)
    assert not failures(found)
    codes = [one.value[0] for one in found if one.value]
    assert codes.count(2) > CASES // 2
    assert codes.count(0) > 0  # --help, and what happens to be right
    assert all(Path("/dev", name).is_char_device() for name in ("null", "zero", "full"))
