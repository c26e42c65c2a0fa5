"""Records that several commands write: each run once, and nothing lost with a full disk."""

from __future__ import annotations

import errno
import importlib
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from setwise.experiments import records, store
from setwise.experiments.evaluate import Evaluator
from setwise.experiments.run import checkpoint_of, ensemble_identity, train, unfinished
from setwise.experiments.train import StoppedError, Training
from setwise.files import alone
from tiny_experiments import puzzle_config, raise_at, state_of

ENSEMBLE = [puzzle_config(loss=loss, seed=seed) for loss in ("SH", "H") for seed in (0, 1)]
RECORDS = "tiny.jsonl"


def train_all(folder: Path, configs: Any = ENSEMBLE, **options: Any) -> int:
    return train(configs, "cpu", folder / "results", folder / "runs", commit="abc", **options)


def kept(folder: Path) -> list[dict[str, Any]]:
    """What the records say of the runs, without how long it took and when."""
    found = records.read(folder / "results" / RECORDS)
    return [{k: v for k, v in r.items() if k not in ("seconds", "finished")} for r in found]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert train_all(folder) == len(ENSEMBLE)
    return kept(folder)


def full(*_: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_finished_training_whose_records_found_no_room(
    tmp_path: Path, undisturbed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not trained again: its checkpoint is used, for all of its members."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(OSError, match=r"No space left on device: .*tiny\.jsonl"):
            train_all(tmp_path)
    assert kept(tmp_path) == []
    saved = checkpoint_of(ENSEMBLE, tmp_path / "runs")
    assert state_of(saved) == ENSEMBLE[0].schedule.epochs
    monkeypatch.setattr(Evaluator, "point", raise_at(1))  # nothing is trained any more
    assert train_all(tmp_path) == len(ENSEMBLE)
    assert kept(tmp_path) == undisturbed
    assert not saved.exists()


def test_a_full_disk_while_a_training_is_saved(
    tmp_path: Path, undisturbed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was saved before is still there, and is gone on from."""
    saved = checkpoint_of(ENSEMBLE, tmp_path / "runs")

    def until_the_third(training: Any, progress: Any) -> None:
        if progress.epoch == 3:
            monkeypatch.setattr(Path, "write_bytes", full)

    with pytest.raises(OSError, match=rf"No space left on device: '{saved}'"):
        train_all(tmp_path, watch=until_the_third, save_every=0)
    monkeypatch.undo()
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]
    assert state_of(saved) == 2
    assert train_all(tmp_path) == len(ENSEMBLE)
    assert kept(tmp_path) == undisturbed


def test_the_same_runs_are_trained_by_one_process(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with alone(results / f".tiny-{ensemble_identity(ENSEMBLE)}.lock", "training the same runs"):
        told = rf"{results}: process {os.getpid()} on .* is training the same runs; wait until"
        with pytest.raises(BlockingIOError, match=told):
            train_all(tmp_path)
        # Others are welcome.
        assert train_all(tmp_path, ENSEMBLE[:1]) == 1
    assert len(kept(tmp_path)) == 1
    assert {path.name for path in results.iterdir()} == {RECORDS}


def test_what_others_trained_meanwhile_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the records and the lock."""
    before = unfinished(ENSEMBLE, tmp_path / "results")
    assert train_all(tmp_path) == len(ENSEMBLE)
    answers = iter([before])
    module = importlib.import_module("setwise.experiments.run")
    monkeypatch.setattr(
        module, "unfinished", lambda *call: next(answers, None) or unfinished(*call)
    )
    monkeypatch.setattr(Training, "run", full)
    train_all(tmp_path)
    assert len(kept(tmp_path)) == len(ENSEMBLE)


def test_overlapping_runs_are_recorded_once(tmp_path: Path) -> None:
    """Two processes that both began when nothing was there; the second ends later."""

    def meanwhile(training: Any, progress: Any) -> None:
        if progress.epoch == 4:
            train_all(tmp_path, ENSEMBLE[:2])

    train_all(tmp_path, watch=meanwhile)
    found = [record["run"] for record in kept(tmp_path)]
    assert sorted(found) == sorted(config.identity for config in ENSEMBLE)
    assert unfinished(ENSEMBLE, tmp_path / "results") == []


def test_killed_between_the_records_and_the_end(
    tmp_path: Path, undisturbed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint that was left behind is removed by the same command."""
    saved = checkpoint_of(ENSEMBLE, tmp_path / "runs")
    append = store.append

    def kill(*call: Any) -> None:
        append(*call)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(store, "append", kill)
        with pytest.raises(SystemExit):
            train_all(tmp_path)
    assert saved.exists()
    lock = tmp_path / "results" / f".tiny-{ensemble_identity(ENSEMBLE)}.lock"
    lock.write_text("of the process that was killed")
    other = saved.with_name("other.ckpt")
    other.write_text("of another training")
    assert train_all(tmp_path) == 0
    assert list(saved.parent.iterdir()) == [other]
    assert not lock.exists()
    assert kept(tmp_path) == undisturbed


def test_trainings_for_other_results_keep_their_checkpoints(
    tmp_path: Path, undisturbed: list[dict[str, Any]]
) -> None:
    """Also those of runs that are recorded here."""
    train_all(tmp_path)
    saved = checkpoint_of(ENSEMBLE, tmp_path / "runs")
    asked = iter([False])  # before it begins, and then after the first epoch
    stop = partial(next, asked, True)
    with pytest.raises(StoppedError):
        train(ENSEMBLE, "cpu", tmp_path / "others", tmp_path / "runs", stop=stop)
    before = saved.read_bytes()
    assert train_all(tmp_path) == 0
    assert saved.read_bytes() == before
    assert kept(tmp_path) == undisturbed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[]", "not a record: expected an object"),
        ("{}", "not a record of a run: 'config' is missing"),
        ('{"config": {}}', "not a record of a run: "),
        ('{"config": {"data": 3}}', "not a record of a run: "),
    ],
)
def test_lines_that_are_no_runs(line: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / RECORDS
    path.write_text(f"{line}\n")
    with pytest.raises(ValueError, match=rf"tiny\.jsonl, line 1: {said}"):
        unfinished(ENSEMBLE, tmp_path)
