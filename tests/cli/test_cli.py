"""``setwise reproduce`` and ``setwise tables``, whole commands on a tiny budget."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from repository import ROOT
from setwise import cli
from setwise.cli import watch
from setwise.cli.installed import install_command
from setwise.cli.interrupt import Interrupt, interruptible
from setwise.cli.training import seeds
from setwise.experiments import store
from setwise.experiments.config import Config, Schedule
from setwise.experiments.experiment import Sheet
from setwise.experiments.recipes import table1, table4
from setwise.experiments.train import TrainingProgress
from tiny_recipe import EPOCHS, EXPERIMENT, make_known, tiny

KEYS = ["loss", "scenario", "reference", "best", "median", "worst", "runs"]
H, SH = "ordered_cross_entropy", "set_cross_entropy"


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Reproduces eight tiny networks, in a folder of its own."""
    make_known(monkeypatch, EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    return ["reproduce", "table1", "--preset", "tiny", "--losses", "SH", "H", "--device", "cpu"]


Captured = pytest.CaptureFixture[str]


def test_from_nothing_to_tables(command: list[str], tmp_path: Path, capsys: Captured) -> None:
    assert cli.main([*command, "--commit", "abc"]) == 0
    said = capsys.readouterr()
    assert "8 runs, 0 of them recorded in results, 8 to train" in said.err
    assert f"8 networks at once for {EPOCHS} epochs" in said.err
    progress = [line for line in said.err.splitlines() if line.startswith("table1-tiny: epoch")]
    assert len(progress) == EPOCHS
    assert f"epoch {EPOCHS} of {EPOCHS}," in progress[-1]
    assert "| SH " in progress[-1]
    assert "0:00 left" in progress[-1]
    assert EXPERIMENT.title in said.out
    assert "paper | best median worst (runs)" in " ".join(said.out.split())
    assert "(2)" in said.out  # runs of a cell
    assert Sheet.read(tmp_path / "results" / "table1-tiny.json") == EXPERIMENT.sheet
    records = store.read(tmp_path / "results" / "table1-tiny.jsonl")
    assert {(r["loss"], r["scenario"], r["seed"]) for r in records} == {
        (loss, scenario, seed) for loss in (H, SH) for scenario in "13" for seed in (0, 1)
    }
    assert {r["environment"]["commit"] for r in records} == {"abc"}
    assert not list(tmp_path.glob("runs/**/*.*"))

    assert cli.main(["tables", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["table1-tiny"]
    assert all(list(c) == [*KEYS, "heldout_best", "heldout_median"] for c in found["table1-tiny"])
    assert [
        (c["loss"], c["scenario"], c["reference"], c["runs"]) for c in found["table1-tiny"]
    ] == [
        *((H, "1", 1.0, 2), (H, "3", 0.0, 2)),
        *((SH, "1", 1.0, 2), (SH, "3", 1.0, 2)),
    ]


def test_what_is_recorded_is_not_trained_again(
    command: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert cli.main([*command, "--seeds", "1", "--scenarios", "3"]) == 0
    first = store.read(tmp_path / "results" / "table1-tiny.jsonl")
    assert len(first) == 2
    assert cli.main([*command, "--seeds", "0-1", "--scenarios", "3"]) == 0
    assert "4 runs, 2 of them recorded in results, 2 to train" in capsys.readouterr().err
    assert cli.main([*command, "--seeds", "0,1", "--scenarios", "3"]) == 0
    said = capsys.readouterr()
    assert "4 runs, 4 of them recorded in results, 0 to train\n" in said.err
    assert "epoch" not in said.err
    assert "(2)" in said.out
    records = store.read(tmp_path / "results" / "table1-tiny.jsonl")
    assert len(records) == 4
    assert records[:2] == first


@pytest.mark.parametrize(("keep", "count"), [("best", 2), ("all", 4)])
def test_networks_are_kept(keep: str, count: int, command: list[str], tmp_path: Path) -> None:
    assert cli.main([*command, "--scenarios", "3", "--keep", keep]) == 0
    kept = {path.stem for path in tmp_path.glob("runs/table1-tiny/*.safetensors")}
    records = store.read(tmp_path / "results" / "table1-tiny.jsonl")
    assert len(kept) == count
    assert kept <= {r["run"] for r in records}
    assert {r["loss"] for r in records if r["run"] in kept} == {H, SH}


def test_logs_for_tensorboard(command: list[str], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert cli.main([*command, "--seeds", "1", "--tensorboard", "logs"]) == 0
    folders = sorted(path.name for path in (tmp_path / "logs" / "table1-tiny").iterdir())
    assert folders == ["1-H-1", "1-SH-1", "3-H-1", "3-SH-1"]
    logs = EventAccumulator(str(tmp_path / "logs" / "table1-tiny" / "3-SH-1"))
    logs.Reload()
    record = next(
        record
        for record in store.read(tmp_path / "results" / "table1-tiny.jsonl")
        if (record["loss"], record["scenario"]) == (SH, "3")
    )
    for name in ("loss", "success", "heldout"):
        logged = logs.Scalars(name)
        assert [event.step for event in logged] == record["history"]["epoch"]
        values = [event.value for event in logged]
        assert values == pytest.approx(record["history"][name], abs=1e-4)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--preset", "huge"], ["table1 has no huge; it has paper, quick", "tiny"]),
        (["--scenarios", "1", "2", "7"], ["has no 2, 7; it has 1, 3"]),
        (["--losses", "SH", "X"], ["--losses: loss: unknown 'X'; known: ", "set_average"]),
        (["--losses", "AH"], ["--losses: the experiment has no AH; it has H, SH, A1H, H1H"]),
        (["--device", "cuda"], ["no CUDA device here; take cpu or auto"]),
    ],
)
def test_wrong_options_say_what_there_is(
    wrong: list[str], said: list[str], command: list[str], capsys: Captured
) -> None:
    if "cuda" in wrong:
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is one")
    assert cli.main([*command, *wrong]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert all(part in message for part in said)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["reproduce", "table99"], "choose from"),
        (["reproduce", "table1", "--device", "tpu"], "choose from"),
        (["reproduce", "table1", "--seeds", "a-b"], "expected 0-9, 0,3,5 or 4, got 'a-b'"),
        (["reproduce", "table1", "--seeds", "1,,2"], "expected 0-9"),
        (["reproduce", "table1", "--seeds=-3"], "expected 0-9"),
        (["reproduce", "table1", "--seeds", "9-0"], "a range goes upwards: 0-9, not 9-0"),
    ],
)
def test_wrong_words_are_told(wrong: list[str], said: str, capsys: Captured) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(wrong)
    assert exit_.value.code == 2
    message = capsys.readouterr().err
    assert said in message
    if said == "choose from":
        assert ("table1" if "table99" in wrong else "cuda") in message


def test_seeds() -> None:
    assert seeds("4") == [4]
    assert seeds("0,3,5") == [0, 3, 5]
    assert seeds("2-4, 3-5,0") == [0, 2, 3, 4, 5]


def test_records_of_another_setting_are_left_alone(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    few = [*command, "--scenarios", "3", "--seeds", "0"]
    assert cli.main(few) == 0

    def longer(scenario: str, loss: str, seed: int) -> Config:
        return replace(tiny(scenario, loss, seed), schedule=Schedule(epochs=7, batch=10))

    make_known(monkeypatch, replace(EXPERIMENT, title="Longer", config=longer))
    capsys.readouterr()
    assert cli.main(few) == 2
    assert f"schedule.epochs ({EPOCHS} and 7)" in capsys.readouterr().err
    assert Sheet.read(Path("results/table1-tiny.json")).title == EXPERIMENT.title


def test_the_cost_is_measured_and_recorded(
    command: list[str], tmp_path: Path, capsys: Captured
) -> None:
    assert cli.main([*command, "--cost", "--commit", "abc", "--threads", "2"]) == 0
    assert "8 networks together took" in " ".join(capsys.readouterr().err.split())
    (line,) = (tmp_path / "results" / "cost.jsonl").read_text().splitlines()
    cost = json.loads(line)
    assert (cost["experiment"], cost["networks"]) == ("table1-tiny", 8)
    assert cost["environment"]["commit"] == "abc"
    assert cost["environment"]["hardware"].endswith(", 2 threads")
    first = json.loads((tmp_path / "results" / "table1-tiny.jsonl").read_text().splitlines()[0])
    assert cost["seconds"] == pytest.approx(first["seconds"])
    for way in ("plain", "compiled"):
        assert cost["seconds_alone"][way] > 0
        expected = 8 * cost["seconds_alone"][way] / cost["seconds"]
        assert cost["times_faster"][way] == pytest.approx(expected)
    assert cli.main([*command, "--cost"]) == 0
    assert "--cost: nothing was trained" in capsys.readouterr().err
    assert len((tmp_path / "results" / "cost.jsonl").read_text().splitlines()) == 1


def test_tables_with_nothing_recorded(tmp_path: Path, capsys: Captured) -> None:
    folder = ["--results", str(tmp_path / "results")]
    assert cli.main(["tables", *folder]) == 1
    assert "setwise reproduce table1 --preset quick" in capsys.readouterr().err
    assert cli.main(["tables", "--json", *folder]) == 0
    assert json.loads(capsys.readouterr().out) == {}
    assert cli.main(["tables", "--experiment", "table9", *folder]) == 1
    assert "no runs of table9 are recorded" in capsys.readouterr().err


def test_tables_are_chosen_and_drawn(command: list[str], tmp_path: Path, capsys: Captured) -> None:
    assert cli.main([*command, "--scenarios", "3", "--seeds", "0"]) == 0
    assert cli.main(["tables", "--experiment", "table1"]) == 2
    assert "results has no table1; it has table1-tiny" in capsys.readouterr().err
    assert cli.main(["tables", "--experiment", "table1-tiny", "--plot", "plots"]) == 0
    said = capsys.readouterr().out
    assert "input fixed" in said
    assert "held out" in said
    assert (tmp_path / "plots" / "table1-tiny-curves.png").exists()


def test_a_record_that_is_none_is_told(tmp_path: Path, capsys: Captured) -> None:
    table1.PAPER.sheet.write(tmp_path)
    (tmp_path / "table1.jsonl").write_text("nonsense\n")
    for command in (["tables"], ["reproduce", "table1"]):
        assert cli.main([*command, "--results", str(tmp_path)]) == 2
        assert "table1.jsonl, line 1: not a record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("rich.console", ["reproduce", "table1"], "experiments"),
        ("torch.utils.tensorboard", ["reproduce", "table1", "--tensorboard", "x"], "experiments"),
        ("matplotlib", ["bench", "losses", "--plot", "x.png"], "bench"),
    ],
)
def test_a_missing_package_is_named(
    module: str,
    arguments: list[str],
    extra: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Captured,
) -> None:
    if module.startswith("torch"):
        monkeypatch.delitem(sys.modules, "setwise.cli.tensorboard", raising=False)
        monkeypatch.delitem(sys.modules, module, raising=False)
        module = "tensorboard"
    monkeypatch.setitem(sys.modules, module, None)
    assert cli.main(arguments) == 2
    package = module.partition(".")[0]
    assert capsys.readouterr().err == f"this needs {package}: {install_command(extra)}\n"


SCRIPT = """
import sys, time, torch
torch.set_num_threads(1)
from setwise import cli
from setwise.cli import watch
from setwise.experiments.recipes import EXPERIMENTS
from tiny_recipe import EXPERIMENT

EXPERIMENTS.add(EXPERIMENT.name, EXPERIMENT)
seen = watch.Watcher.__call__

def wait_at_the_third(self, configs, progress):
    seen(self, configs, progress)
    deadline = time.monotonic() + 60
    while progress.epoch == 3 and not self._interrupt.pressed and time.monotonic() < deadline:
        time.sleep(0.01)

watch.Watcher.__call__ = wait_at_the_third
sys.exit(cli.main(sys.argv[1:]))
"""


# Slow: each is a process, and both signals take the same way.
# In a process of its own; the first tier stops this one, in test_train.py.
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
def test_a_stop_saves_and_the_same_command_goes_on(
    number: signal.Signals, command: list[str], tmp_path: Path, capsys: Captured
) -> None:
    """To the same results as without an interruption."""
    assert cli.main([*command, "--results", "whole"]) == 0
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *command],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT / "tests" / "support"), "PATH": ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("table1-tiny: epoch 3 "):
                process.send_signal(number)
                break
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, said
    assert "epoch 4" not in said
    assert said.splitlines()[-1] == f"stopped, saved; to go on: setwise {' '.join(command)}"
    (saved,) = tmp_path.glob("runs/table1-tiny/*.ckpt")
    assert [path.name for path in (tmp_path / "results").iterdir()] == ["table1-tiny.json"]

    capsys.readouterr()
    assert cli.main(command) == 0
    said = capsys.readouterr().err
    assert f"going on from runs/table1-tiny/{saved.name}" in said
    assert "epoch 3 of" not in said
    assert "epoch 4 of" in said
    assert not saved.exists()
    resumed, whole = (
        {r["run"]: r for r in store.read(tmp_path / folder / "table1-tiny.jsonl")}
        for folder in ("results", "whole")
    )
    assert resumed.keys() == whole.keys()
    for run, record in whole.items():
        assert resumed[run]["metrics"] == pytest.approx(record["metrics"], abs=1e-5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
def test_ctrl_c_after_a_signal_stops_at_once(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with interruptible() as interrupt:
        signal.raise_signal(number)
        assert interrupt()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(number) is before


def see(sheet: Sheet, configs: list[Config], **options: Any) -> str:
    """What a terminal shows after an evaluation."""
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    interrupt = Interrupt()
    count = len(configs)
    rates = [k / count for k in range(count)]
    progress = TrainingProgress(50, 200, 75.0, [2.0] * count, rates, [0.25] * count)
    view = watch.CellsView(sheet)
    with watch.Watcher(terminal, sheet.name, view, interrupt, ensembles=2) as watcher:
        before = watcher._render()
        watcher(configs, progress)
        interrupt.pressed = options.get("pressed", False)
        with terminal.capture() as captured:
            terminal.print(before)
            terminal.print(watcher._render())
    return captured.get()


def test_a_terminal_shows_a_table() -> None:
    shown = see(EXPERIMENT.sheet, EXPERIMENT.configs(losses=[H, SH]))
    assert "table1-tiny: first epochs, 0:00 gone" in shown
    assert "table1-tiny (1 of 2): epoch 50 of 200, 1:15 gone, 3:45 left" in shown
    assert "H  │         2 │ 0.12 0.06 │ 0.62 0.56" in shown
    assert "success: best and median" in shown
    assert "Ctrl-C" not in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_a_terminal_shows_the_held_out_rate_where_it_is_the_number() -> None:
    scenario = "n2-2250-random"
    configs = table4.PAPER.configs(range(2), [scenario], [SH])
    shown = see(table4.PAPER.sheet, configs, pressed=True)
    assert table4.PAPER.metric == "heldout"
    assert "0.25 0.25" in shown
    assert "held out: best and median" in shown
    assert "stopping after this epoch; Ctrl-C again to stop at once" in shown
