"""``setwise train FILE.py``: an experiment of one's own, from its file to a table."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from setwise import cli
from setwise.cli.watch import Watcher
from setwise.experiments import records
from setwise.experiments.config import Config
from setwise.experiments.experiment import Sheet
from setwise.experiments.train import TrainingProgress
from setwise.losses.table import LOSSES
from tiny_recipe import EPOCHS, EXPERIMENT

Captured = pytest.CaptureFixture[str]

FILE = """
from dataclasses import replace
from setwise.experiments import Experiment
from tiny_recipe import tiny


def config(scenario, loss, seed):
    return replace(tiny(scenario, loss, seed), experiment="own")


OWN = Experiment(
    name="own",
    title="My own experiment",
    config=config,
    scenarios={"1": "in order", "3": "in any order"},
    losses=("set_cross_entropy", "hausdorff"),
    seeds=2,
)
"""
OTHER = """
def other(scenario, loss, seed):
    return replace(tiny(scenario, loss, seed), experiment="other")


OTHER = replace(OWN, name="other", title="Another one", config=other)
"""
LOSS = """
from setwise.losses import register_loss, set_average


def thrice(*args, **options):
    return 3 * set_average(*args, **options)


register_loss(thrice, symbol="3A")
OWN = replace(OWN, losses=("set_cross_entropy", "thrice"))
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    # For a user every command is a process of its own: no file is imported yet, no loss known.
    monkeypatch.setitem(sys.modules, "mine", None)
    del sys.modules["mine"]
    monkeypatch.setattr(LOSSES, "_entries", dict(LOSSES))


def train(text: str, *options: str, file: str = "mine.py") -> int:
    Path(file).write_text(text)
    return cli.main(["train", file, "--device", "cpu", *options])


def refusal(capsys: Captured, text: str, *options: str) -> str:
    """The one line in which the command refuses; nothing is written then."""
    assert train(text, *options) == 2
    said = capsys.readouterr()
    assert not said.out
    assert said.err.count("\n") == 1
    assert not Path("results").exists()
    assert not Path("runs").exists()
    return said.err


def test_from_a_file_to_a_table(capsys: Captured) -> None:
    assert train(FILE) == 0
    said = capsys.readouterr()
    assert "own: 8 runs, 0 of them recorded in results, 8 to train" in said.err
    assert f"own: epoch {EPOCHS} of {EPOCHS}" in said.err
    assert "My own experiment" in said.out
    assert "│ H1H │" in said.out
    found = records.read(Path("results/own.jsonl"))
    assert {(r["experiment"], r["loss"], r["scenario"], r["seed"]) for r in found} == {
        ("own", loss, scenario, seed)
        for loss in ("set_cross_entropy", "hausdorff")
        for scenario in "13"
        for seed in (0, 1)
    }
    assert {path.name for path in Path("results").iterdir()} == {"own.json", "own.jsonl"}
    sheet = Sheet.read(Path("results/own.json"))
    assert sheet.title == "My own experiment"
    assert [style.symbol for style in sheet.losses.values()] == ["SH", "H1H"]
    assert sheet.reference is None
    assert sheet.command == "setwise train mine.py"

    # What the sheet names trains nothing twice.
    assert cli.main(shlex.split(sheet.command)[1:]) == 0
    assert "8 of them recorded in results, 0 to train" in capsys.readouterr().err
    assert records.read(Path("results/own.jsonl")) == found
    assert cli.main(["tables"]) == 0
    assert "My own experiment" in capsys.readouterr().out


def test_some_of_its_runs(capsys: Captured) -> None:
    """With a loss that the file brings along, called by its symbol."""
    assert train(FILE + LOSS, "--losses", "3A", "--scenarios", "3", "--seeds", "5") == 0
    [record] = records.read(Path("results/own.jsonl"))
    assert (record["loss"], record["scenario"], record["seed"]) == ("thrice", "3", 5)
    assert "│ 3A │" in capsys.readouterr().out
    assert list(Sheet.read(Path("results/own.json")).losses) == ["set_cross_entropy", "thrice"]


def test_networks_are_kept_where_the_command_is_told(capsys: Captured) -> None:
    folders = ["--results", "my results", "--runs", "my runs"]
    assert train(FILE, "--seeds", "0", "--keep", "all", *folders) == 0
    runs = {record["run"] for record in records.read(Path("my results/own.jsonl"))}
    assert {path.stem for path in Path("my runs/own").iterdir()} == runs
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("x = 1", [], "mine.py: defines no experiment; write one, as in EXPERIMENT = setwise."),
        ("x = 1", ["--experiment", "own"], "mine.py: defines no experiment"),
        (FILE + OTHER, [], "mine.py: defines own, other; choose one of them with --experiment"),
        (FILE + OTHER, ["--experiment", "x"], "--experiment: mine.py defines no x, but own, other"),
        (FILE, ["--losses", "A1H"], "--losses: the experiment has no A1H; it has SH, H1H"),
        (FILE, ["--losses", "X"], "--losses: loss: unknown 'X'; known: ordered_cross_entropy, "),
        (FILE, ["--scenarios", "2"], "--scenarios: own has no 2; it has 1, 3"),
    ],
)
def test_what_is_not_in_the_file(
    text: str, options: list[str], said: str, capsys: Captured
) -> None:
    assert refusal(capsys, text, *options).startswith(said)


def test_one_of_several(capsys: Captured) -> None:
    assert train(FILE + OTHER, "--experiment", "other", "--seeds", "0") == 0
    assert "Another one" in capsys.readouterr().out
    assert {path.name for path in Path("results").iterdir()} == {"other.json", "other.jsonl"}
    assert Sheet.read(Path("results/other.json")).command == (
        "setwise train mine.py --experiment other"
    )


def test_a_metric_of_ones_own_choice_is_watched_and_drawn(capsys: Captured) -> None:
    text = FILE.replace("seeds=2", 'metric="exact"')
    assert train(text, "--seeds", "0", "--losses", "SH") == 0
    [one, three] = records.read(Path("results/own.jsonl"))
    assert len(one["history"]["exact"]) == len(three["history"]["exact"]) == EPOCHS
    assert "success" not in one["history"]
    assert cli.main(["tables", "--plot", "."]) == 0
    assert Path("own-curves.png").exists()


def test_a_metric_that_nobody_measures(capsys: Captured) -> None:
    """It is told before anything is trained."""
    assert train(FILE.replace("seeds=2", 'metric="exacct"')) == 2
    said = capsys.readouterr().err
    known = "success, exact, loss, train, heldout"
    assert said.splitlines()[-1] == f"metric: own has no 'exacct'; its runs have {known}"
    assert "epoch 1" not in said
    assert not Path("results/own.jsonl").exists()


@pytest.mark.parametrize("name", ["table1", "table5-quick"])
def test_a_name_of_the_library(name: str, capsys: Captured) -> None:
    said = refusal(capsys, FILE.replace('"own"', f'"{name}"'))
    assert said.startswith(f"mine.py: name: {name!r} is an experiment of the library")
    assert not Path("results").exists()


def test_a_second_name_for_one_experiment(capsys: Captured) -> None:
    assert train(f"{FILE}\nEXPERIMENT = OWN", "--seeds", "0", "--losses", "SH") == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import torch\n\nnothing_like_it", "line 3: NameError: name 'nothing_like_it' is not"),
        ("def f():\n    return 1 / 0\n\n\nf()", "line 2: ZeroDivisionError: division by zero"),
        ("from setwise import Features\nFeatures(3)", "line 2: TypeError: "),
        ("raise SystemExit('enough')", "line 1: SystemExit: enough"),
        (
            FILE.replace("hausdorff", "hausdorf"),
            "line 11: UnknownNameError: loss: unknown 'hausdorf'",
        ),
        (FILE.replace('name="own"', 'name="../own"'), "line 11: ValueError: name: expected one "),
    ],
)
def test_a_file_that_fails(text: str, said: str, capsys: Captured) -> None:
    """The line is told, and the last one where it is in a function of the file or deeper."""
    assert refusal(capsys, text).startswith(f"FILE.py: mine.py, {said}")
    # Once that is mended, the same command works.
    assert train(FILE, "--seeds", "0", "--losses", "SH", "--scenarios", "1") == 0


def test_a_file_that_is_no_python(capsys: Captured) -> None:
    said = refusal(capsys, "x = 1\nclass X(")
    assert said == "FILE.py: mine.py: SyntaxError: '(' was never closed (mine.py, line 2)\n"
    assert train("", file="mine.txt") == 2
    assert capsys.readouterr().err == "FILE.py: expected a Python file, got mine.txt\n"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            ('experiment="own"', 'experiment="table1"'),
            "own: config('1', 'set_cross_entropy', 0) gives a run with experiment 'table1'; it "
            "must be 'own'",
        ),
        (("loss, seed), exp", "loss, 7), exp"), "gives a run with seed 7; it must be 0"),
        (('experiment="own"', 'experiment="own", precision="low"'), "precision: must be one of "),
    ],
)
def test_configs_that_are_wrong(change: tuple[str, str], said: str, capsys: Captured) -> None:
    assert said in refusal(capsys, FILE.replace(*change))


def test_records_of_another_setting_are_left_alone(capsys: Captured) -> None:
    """With their sheet, though the new file tells the same name."""
    few = ["--seeds", "0", "--losses", "SH", "--scenarios", "1"]
    assert train(FILE, *few) == 0
    before = {path: path.read_bytes() for path in Path("results").iterdir()}
    del sys.modules["mine"]
    capsys.readouterr()
    changed = FILE.replace('experiment="own"', 'experiment="own", precision="highest"')
    assert train(changed.replace("My own", "A new"), *few) == 2
    assert 'runs of set_cross_entropy in scenario 1 differ in precision ("high" and "highest")' in (
        capsys.readouterr().err
    )
    assert {path: path.read_bytes() for path in Path("results").iterdir()} == before


def test_a_stop_saves_and_the_same_command_goes_on(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the same results as without an interruption."""
    assert train(FILE, "--results", "whole") == 0
    seen = Watcher.__call__

    def press(self: Watcher, configs: Sequence[Config], progress: TrainingProgress) -> None:
        seen(self, configs, progress)
        if progress.epoch == 3:
            signal.raise_signal(signal.SIGINT)

    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "__call__", press)
        assert train(FILE) == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == "stopped, saved; to go on: setwise train mine.py --device cpu"
    assert not any("epoch 4" in line for line in said)
    assert [path.name for path in Path("results").iterdir()] == ["own.json"]
    (saved,) = Path("runs/own").iterdir()

    assert cli.main(shlex.split(said[-1].partition("to go on: setwise ")[2])) == 0
    resumed = capsys.readouterr().err
    assert f"going on from {saved}" in resumed
    assert "epoch 3 of" not in resumed
    assert "epoch 4 of" in resumed
    assert not saved.exists()
    ours, whole = (
        {record["run"]: record for record in records.read(Path(folder) / "own.jsonl")}
        for folder in ("results", "whole")
    )
    assert ours.keys() == whole.keys()
    assert len(ours) == 8
    for run, record in whole.items():
        assert ours[run]["metrics"] == record["metrics"]
        assert ours[run]["history"] == record["history"]


def test_an_experiment_of_the_library_is_one_too(capsys: Captured) -> None:
    """It has a command of its own, which the sheet keeps."""
    text = "from tiny_recipe import EXPERIMENT"
    assert train(text, "--seeds", "0", "--losses", "SH", "--scenarios", "3") == 0
    assert Sheet.read(Path("results/table1-tiny.json")) == EXPERIMENT.sheet
    assert "1.00 |" in capsys.readouterr().out  # the published number
