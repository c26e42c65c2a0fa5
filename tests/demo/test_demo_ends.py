"""``setwise demo`` that ends early, or is begun where something lies: nothing is lost."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path

import pytest

from setwise.cli.watch import Watcher
from setwise.demo.learn import checkpoint_of
from setwise.experiments.config import Config
from setwise.experiments.recipes import demo
from setwise.experiments.train import TrainingProgress
from setwise.files import alone
from small_demo import Captured, run, small

learn = importlib.import_module("setwise.demo.learn")  # the package has a function of this name


def test_ctrl_c_saves_and_the_same_command_goes_on(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "config", small(20))
    seen = Watcher.__call__

    def press(self: Watcher, configs: list[Config], progress: TrainingProgress) -> None:
        seen(self, configs, progress)
        if progress.epoch == 6:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "__call__", press)
        stopped = run(tmp_path, capsys)
    assert stopped.code == 130
    assert not stopped.out
    assert "epoch 8 of" not in stopped.err
    last = stopped.err.splitlines()[-1]
    assert last.startswith("stopped, the training is saved; to go on: ")
    assert last.endswith(f" demo --output {tmp_path}")
    saved = checkpoint_of(tmp_path, seed=0)
    assert [path.name for path in tmp_path.iterdir()] == [saved.name]

    resumed = run(tmp_path, capsys)
    assert f"going on from {saved}" in resumed.err
    assert "epoch 6 of" not in resumed.err
    assert "epoch 8 of" in resumed.err
    assert resumed.page.exists()
    assert not saved.exists()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "stopped, the training is saved; to go on: "),
        (OSError("No space left on device"), 2, "No space left on device"),
    ],
    ids=["ctrl-c", "error"],
)
def test_what_ends_the_planning_costs_no_training(
    error: BaseException,
    code: int,
    said: str,
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(demo, "config", small(20))
    with monkeypatch.context() as patch:
        patch.setattr("setwise.planning.LatentPlanner.solve", fail)
        ended = run(tmp_path, capsys)
    assert ended.code == code
    assert ended.err.splitlines()[-1].startswith(said)
    assert not ended.page.exists()
    networks = [(tmp_path / f"{loss}.safetensors").read_bytes() for loss in demo.LOSSES]

    resumed = run(tmp_path, capsys)
    assert "going on from" in resumed.err
    assert "epoch" not in resumed.err
    assert resumed.page.exists()
    assert not list(tmp_path.glob("*.ckpt"))
    again = [(tmp_path / f"{loss}.safetensors").read_bytes() for loss in demo.LOSSES]
    assert again == networks


def test_ctrl_c_twice(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is saved then, and nothing else is said."""

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "config", small(20))
    monkeypatch.setattr(Watcher, "__call__", pressed)
    ended = run(tmp_path, capsys)
    assert ended.code == 130
    assert ended.err.endswith("\nstopped\n")
    assert not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_told(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "config", small(2))
    saved = checkpoint_of(tmp_path, seed=0)
    saved.write_text("nonsense")
    ended = run(tmp_path, capsys)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith(f"{saved}: damaged")


def test_a_page_of_somebody_else_stays(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found before anything is trained."""
    monkeypatch.setattr(demo, "config", small(2))
    page = tmp_path / "index.html"
    page.write_text("<!doctype html>\n<title>mine</title>")
    ended = run(tmp_path, capsys)
    assert ended.code == 2
    assert ended.err == (
        f"{page}: is there already and is no page of setwise; choose another name, or remove it\n"
    )
    assert page.read_text() == "<!doctype html>\n<title>mine</title>"


def test_two_in_one_folder(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "config", small(2))
    with alone(tmp_path / ".lock", "making this demonstration"):
        ended = run(tmp_path, capsys)
    assert ended.code == 2
    assert ended.err.startswith(f"{tmp_path}: process {os.getpid()} on ")
    assert "is making this demonstration; wait until it has ended" in ended.err
    assert ended.err.count("\n") == 1


def test_it_saves_every_few_seconds(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After kill -9 in the first minute the same command goes on, and does not begin anew."""
    monkeypatch.setattr(demo, "config", small(20))
    assert learn.SAVE_EVERY <= 10
    monkeypatch.setattr(learn, "SAVE_EVERY", 0.0)

    def killed(self: Watcher, configs: list[Config], progress: TrainingProgress) -> None:
        if progress.epoch == 10:
            raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Watcher, "__call__", killed)
        with pytest.raises(SystemExit):
            run(tmp_path, capsys)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint_of(tmp_path, seed=0).name]
    resumed = run(tmp_path, capsys)
    assert "going on from" in resumed.err
    assert "epoch 8 of" not in resumed.err
    assert "epoch 10 of" in resumed.err
