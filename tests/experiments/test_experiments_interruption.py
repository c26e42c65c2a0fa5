"""What is left of a training after kill -9, and that it goes on to the same bits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch

from setwise.experiments import checkpoint
from setwise.experiments.train import RunResult, StoppedError, Training, TrainingProgress
from tiny_experiments import SYMBOLS, assert_same_bits, puzzle_config, raise_at, state_of, trained

KILLED = """
import itertools, json, os, signal, sys, time
from pathlib import Path
import torch
from setwise.experiments.config import config_from
from setwise.experiments.train import Training

torch.set_num_threads(1)
path, moment = Path(sys.argv[1]), sys.argv[2]
times = itertools.count(1)

def die_while_writing(unfinished, content):
    third = next(times) == 3
    with open(unfinished, "wb") as file:
        file.write(content[: len(content) // 2] if third else content)
    if third:
        os.kill(os.getpid(), signal.SIGKILL)

if moment == "while writing":
    Path.write_bytes = die_while_writing
configs = [config_from(saved) for saved in json.load(sys.stdin)]
training = Training(configs, "cpu", save_to=path, save_every=0)
# Never reaches its end: the last epochs take a minute each.
training.run(lambda progress: time.sleep(0.01 if progress.epoch < 15 else 60))
"""


INTERRUPTED = tuple(
    puzzle_config(loss=loss, seed=seed, epochs=20, evaluations=20)
    for loss in SYMBOLS
    for seed in (0, 1)
)


@cache
def uninterrupted() -> tuple[Training, list[RunResult]]:
    return trained(INTERRUPTED)


class TestInterruption:
    """With noise and dropout on, and on the CPU, a resumed run gives the same bits."""

    # Slow: each is a process. At any moment of a training, and at the worst: while it writes.
    # Processes that are killed; the first tier interrupts this one, below, wherever it can.
    @pytest.mark.slow
    @pytest.mark.parametrize("moment", ["while training", "while writing"])
    def test_kill_9_changes_nothing(self, tmp_path: Path, moment: str) -> None:
        path = tmp_path / "state.ckpt"
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), moment], stdin=subprocess.PIPE
        )
        assert process.stdin is not None
        with process.stdin as given:
            given.write(json.dumps([config.as_dict() for config in INTERRUPTED]).encode())
        if moment == "while training":
            while process.poll() is None and not (path.exists() and state_of(path) >= 4):
                time.sleep(0.001)
            process.kill()
        assert process.wait(timeout=60) == -signal.SIGKILL
        reached = state_of(path)
        if moment == "while writing":
            assert reached == 2
            assert len(list(tmp_path.iterdir())) == 2  # half a file, which nobody reads
        assert 1 <= reached < 20
        seen: list[int] = []
        training = Training(INTERRUPTED, "cpu", save_to=path)
        results = training.run(lambda progress: seen.append(progress.epoch))
        assert seen == list(range(reached + 1, 21))
        assert_same_bits((training, results), uninterrupted())

    def test_a_checkpoint_that_is_replaced_while_it_is_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The header may be of one file and the tensors of the next: it is read again."""
        path, opened = tmp_path / "state.ckpt", safetensors.safe_open

        class Torn:
            """Another file takes the place between header and tensors, as long as there are any."""

            def __init__(self, *given: Any, **options: Any) -> None:
                self._header = opened(*given, **options)
                if later:
                    epoch = later.pop()
                    checkpoint.write(path, {"x": torch.full((2,), epoch)}, {"epoch": epoch})
                self._tensors = opened(*given, **options)

            def __enter__(self) -> Torn:
                return self

            def __exit__(self, *given: object) -> None: ...

            def metadata(self) -> Any:
                return self._header.metadata()

            def keys(self) -> Any:
                return self._tensors.keys()

            def get_tensor(self, name: str) -> Any:
                return self._tensors.get_tensor(name)

        monkeypatch.setattr(safetensors, "safe_open", Torn)
        later = [3, 2]
        checkpoint.write(path, {"x": torch.full((2,), 1)}, {"epoch": 1})
        tensors, facts = checkpoint.read(path)
        assert (tensors["x"].tolist(), facts) == ([3, 3], {"epoch": 3})

    def test_a_run_may_be_interrupted_at_any_epoch_and_often(self, tmp_path: Path) -> None:
        path = tmp_path / "state.ckpt"
        for epoch in (1, 2, 2, 9, 20):
            training = Training(INTERRUPTED, "cpu", save_to=path, save_every=0)
            with pytest.raises(KeyboardInterrupt):
                training.run(raise_at(epoch))
            if epoch > 1:
                assert state_of(path) == epoch - 1
        assert_same_bits(trained(INTERRUPTED, save_to=path), uninterrupted())

    def test_a_run_that_is_asked_to_stop_saves_what_it_has(self, tmp_path: Path) -> None:
        path = tmp_path / "state.ckpt"
        answers = iter([False, False, True])
        training = Training(INTERRUPTED, "cpu", save_to=path)  # would save after minutes
        with pytest.raises(StoppedError):
            training.run(stop=lambda: next(answers))
        assert state_of(path) == 3
        assert_same_bits(trained(INTERRUPTED, save_to=path), uninterrupted())

    def test_a_run_that_had_ended_is_not_trained_again(self, tmp_path: Path) -> None:
        """Killed between its last checkpoint and its record."""
        path = tmp_path / "state.ckpt"
        trained(INTERRUPTED, save_to=path, save_every=0)
        assert state_of(path) == 20
        again = Training(INTERRUPTED, "cpu", save_to=path)
        assert_same_bits((again, again.run(raise_at(20))), uninterrupted())

    def test_the_time_of_interrupted_runs_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "state.ckpt"

        def slow(progress: TrainingProgress) -> None:
            time.sleep(0.3)
            raise_at(2)(progress)

        began, seen = time.perf_counter(), []
        with pytest.raises(KeyboardInterrupt):
            Training(INTERRUPTED[:1], "cpu", save_to=path, save_every=0).run(slow)
        training = Training(INTERRUPTED[:1], "cpu", save_to=path)
        training.run(seen.append)
        took = time.perf_counter() - began
        assert 0.3 < seen[0].seconds < seen[-1].seconds <= training.seconds < took
        assert seen[-1].seconds_left == 0.0
        assert seen[0].seconds_left == pytest.approx(seen[0].seconds / 2 * 18)

    def test_the_checkpoint_of_other_runs_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state.ckpt"
        trained(INTERRUPTED, save_to=path, save_every=0)
        before = path.read_bytes()
        for others in (INTERRUPTED[:-1], (*INTERRUPTED[:-1], puzzle_config(seed=7, epochs=20))):
            others = [replace(other, schedule=INTERRUPTED[0].schedule) for other in others]
            with pytest.raises(ValueError, match=r"state\.ckpt: was saved by other runs"):
                Training(others, "cpu", save_to=path).run()
        assert path.read_bytes() == before

    def test_half_a_checkpoint_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state.ckpt"
        trained(INTERRUPTED[:1], save_to=path, save_every=0)
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(ValueError, match=r"state\.ckpt: damaged"):
            Training(INTERRUPTED[:1], "cpu", save_to=path).run()

    def test_tensors_of_another_network_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "state.ckpt"
        trained(INTERRUPTED[:1], save_to=path, save_every=0)
        tensors, facts = checkpoint.read(path)
        tensors["unknown"] = tensors.pop("autoencoder.decoder.output.bias")
        checkpoint.write(path, tensors, facts)
        with pytest.raises(ValueError, match=r"another network; differs in .*output\.bias, unkn"):
            Training(INTERRUPTED[:1], "cpu", save_to=path).run()
