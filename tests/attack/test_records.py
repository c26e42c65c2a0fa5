"""Files of records from anywhere: read as what they say, or refused in one line with its place."""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from hostile import VALUES, flipped, mutated, shortened
from limits import failures, within_limits
from recorded import write
from setwise import cli
from setwise.experiments.config import Config
from setwise.experiments.experiment import LossStyle, Sheet
from setwise.experiments.records import SCHEMA, Record, record_of
from setwise.experiments.run import unfinished
from tiny_experiments import puzzle_config

# Slow: 840 files. Some kinds of damage are in tests/experiments/test_store.py, and many in
# tests/cli/test_report_command.py.
pytestmark = pytest.mark.slow
CASES, SHEETS = 840, 150
SHEET = Sheet(
    name="tiny",
    title="Attacked",
    scenarios={"1": "in order", "4": "in any order"},
    losses={"set_cross_entropy": LossStyle("SH", "set cross entropy", "#dc143c")},
    metric="success",
    metric_label="share",
)
# Texts in the place of a value that `json.dumps` does not write.
RAW = ["NaN", "-Infinity", "1e999", "9" * 5000, "[" * 2000, '"\\ud800"', '"\\u0000"', "01", "'x'"]
LINES = ["", " ", "{}", "[]", "null", "true", "0", '"x"', "{", "}", "\ufeff{}", "\x00", "\x1b[2J"]


def configs() -> list[Config]:
    return [puzzle_config(scenario, seed=seed) for scenario in "14" for seed in (0, 1)]


@cache
def originals() -> tuple[Record, ...]:
    """As a training writes them."""
    history: dict[str, list[float]] = {"epoch": [1, 2], "loss": [2.0, 1.0], "success": [0.0, 0.5]}
    shared = {
        **{"ensemble": "0" * 16, "members": 4, "seconds": 1.5},
        **{"finished": "2026-01-02T10:00:00+00:00"},
        "environment": {"commit": "f" * 40, "torch": "2", "hardware": "a machine"},
    }
    metrics = {"success": 0.5, "heldout": 0.25, "loss": 1.0}
    return tuple(record_of(config, metrics, history) | shared for config in configs())


def attacked(seed: int) -> bytes:
    """The file of records, damaged in one of many ways."""
    rng = random.Random(seed)
    records: list[Any] = list(originals())
    number, how = rng.randrange(len(records)), seed % 8
    if how < 3:
        records[number] = mutated(records[number], rng)
    lines = [json.dumps(record) for record in records]
    if how == 3:  # what JSON cannot hold
        value = json.dumps(rng.choice([0.5, 1.5, "tiny", [1, 2]]))
        lines[number] = lines[number].replace(value, rng.choice(RAW), 1)
    if how == 4:
        lines[number : number + rng.randrange(2)] = [rng.choice(LINES)]
    if how == 5:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
        rng.shuffle(lines)
    data = rng.choice(["\n", "\n", "\r\n"]).join(lines) + rng.choice(["\n", ""])
    if how == 6:
        return flipped(data.encode(), rng)
    if how == 7:
        return shortened(data.encode(), rng)
    return data.encode()


# Made once: that takes longer than what is tried with it.
PARSER = cache(cli.command_line)


def command(*words: str) -> int:
    """The exit code of a command."""
    with patch.object(cli, "command_line", PARSER):
        return cli.main(list(words))


def read(seed: int) -> None:
    """As commands do, which show a table, a page, or look for what is left to train."""
    with tempfile.TemporaryDirectory() as name:
        results = Path(name)
        SHEET.write(results)
        path = results / "tiny.jsonl"
        path.write_bytes(attacked(seed))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command("tables", "--json", "--results", name)
            if code == 0 and seed % 10 == 0:
                page = str(results / "page.html")
                assert command("report", "--results", name, "--output", page) == 0
        if code == 0:
            found = json.loads(out.getvalue().partition("\nwritten")[0])
            assert sum(cell["runs"] for cell in found.get("tiny", ())) == len(_runs(path)), found
        else:
            assert code == 2
            said = err.getvalue()
            assert said.startswith((str(path), "tiny: runs of ")), said
            assert said.count("\n") == 1, said
        assert _left_to_train(results).startswith(("of 4 ", f"{path}"))


def _left_to_train(results: Path) -> str:
    """How many runs, or in one line why that cannot be told."""
    try:
        return f"of 4 {len(unfinished(configs(), results))}"
    except ValueError as error:
        return "several lines" if "\n" in str(error) else str(error)


def _runs(path: Path) -> set[str]:
    """By a reading of its own: all lines are objects, but for a last one that was cut off."""
    *lines, last = path.read_text(encoding="utf-8").split("\n")
    found = {json.loads(line)["run"] for line in lines}
    with contextlib.suppress(ValueError, RecursionError):
        found.add(json.loads(last)["run"])
    return found


def show(seed: int) -> None:
    """Whole records beside a sheet that is damaged: tables and the page are shown, or one line."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        results = Path(name)
        write(results, list(originals()), SHEET)
        path = results / "tiny.json"
        damaged = [mutated(json.loads(path.read_text()), rng), SHEET.title]
        content = json.dumps(damaged[seed % 7 == 6]).encode()
        path.write_bytes(flipped(content, rng) if seed % 3 == 2 else content)
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command("tables", "--results", name)
            if seed % 5 == 0:
                page = str(results / "page.html")
                assert command("report", "--results", name, "--output", page) == code
        assert code in (0, 2)
        if code == 2:
            said = err.getvalue().splitlines()
            assert len(set(said)) == 1, said
            assert name in said[0], said


def test_every_file_is_read_or_refused() -> None:
    outcomes = within_limits(read, range(CASES), seconds=20)
    assert not failures(outcomes)


def test_every_sheet_is_read_or_refused() -> None:
    outcomes = within_limits(show, range(SHEETS), seconds=20)
    assert not failures(outcomes)


def test_the_whole_file_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is attacked would be shown, and nothing is left to train."""
    write(tmp_path, list(originals()), SHEET)
    assert cli.main(["tables", "--json", "--results", str(tmp_path)]) == 0
    assert [cell["runs"] for cell in json.loads(capsys.readouterr().out)["tiny"]] == [2, 2]
    assert unfinished(configs(), tmp_path) == []
    assert {record["schema"] for record in originals()} == {SCHEMA}
    assert len(VALUES) > 20
