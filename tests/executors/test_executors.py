"""Executors: work on this machine, one of a user's own, and addresses that do not answer."""

from __future__ import annotations

import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from setwise import cli
from setwise.cli.user_file import run_file
from setwise.executors import (
    EXECUTORS,
    ExecutorError,
    LocalExecutor,
    StoppedError,
    Work,
    open_executor,
)
from setwise.executors.definitions import import_texts, texts_of
from setwise.executors.executor import Ended, Stop, Told
from setwise.executors.ray_address import started_here
from setwise.experiments import records
from setwise.experiments.run import ensembles
from tiny_experiments import puzzle_config
from tiny_recipe import EXPERIMENT, make_known

TINY = "table1-tiny.jsonl"
Captured = pytest.CaptureFixture[str]


def count(to: int, *, tell: Callable[[int], None], stop: Callable[[], bool]) -> int:
    for number in range(to):
        if stop():
            raise StoppedError
        tell(number)
    if to == 0:
        raise ValueError("nothing\nto count")
    return to


def counted(executor: Any, *numbers: int, stop: Stop = lambda: False) -> tuple[list, list]:
    told: list[tuple[str, int]] = []
    works = [Work(f"count to {number}", count, (number,)) for number in numbers]
    ended = executor.run(works, told=lambda work, item: told.append((work.name, item)), stop=stop)
    return [result for _, result in ended], told


def test_work_in_this_process_is_done_in_order() -> None:
    """That of others is tested where pictures are drawn, in tests/render."""
    results, told = counted(LocalExecutor(), 2, 1)
    assert results == [2, 1]
    assert told == [("count to 2", 0), ("count to 2", 1), ("count to 1", 0)]
    with pytest.raises(StoppedError):
        counted(LocalExecutor(), 2, stop=lambda: True)
    with pytest.raises(ValueError, match="nothing"):  # itself, as it was raised
        counted(LocalExecutor(), 0)


class Queue:
    """An executor of a user's own, which spreads work over this process."""

    spreads, gpus = True, 0.0

    def __init__(self, place: str) -> None:
        self.place, self.names, self.closed = place, [], False

    def __str__(self) -> str:
        return f"the queue {self.place}"

    def run(self, works: Iterable[Work], *, told: Told, stop: Stop) -> Ended:
        for work in list(works)[::-1]:  # all that there is, in an order of its own
            self.names.append(work.name)
            function, arguments = pickle.loads(pickle.dumps((work.function, work.arguments)))
            yield work, function(*arguments, tell=lambda item, w=work: told(w, item), stop=stop)

    def close(self) -> None:
        self.closed = True


def test_an_executor_of_ones_own_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """What it trains travels as its record, and comes to the same records."""
    opened: list[Queue] = []

    def open_queue(place: str) -> Queue:
        opened.append(Queue(place))
        return opened[-1]

    monkeypatch.setitem(EXECUTORS._entries, "queue", open_queue)
    monkeypatch.chdir(tmp_path)
    make_known(monkeypatch, EXPERIMENT)
    command = ["reproduce", "table1", "--preset", "tiny", "--device", "cpu", "--losses", "SH"]
    command += ["--scenarios", "1", "--together", "1"]
    assert cli.main([*command, "--on", "queue://a", "--keep", "best"]) == 0
    said = capsys.readouterr().err
    assert "1 networks at once for 6 epochs, 2 times" in said
    assert "on the queue queue://a" in said
    assert "table1-tiny (2 of 2): epoch 6 of 6" in said
    [queue] = opened
    assert queue.closed
    assert queue.names == ["table1-tiny: training 1 networks"] * 2
    assert cli.main([*command, "--results", "here"]) == 0
    ours, others = (
        {record["run"]: record["metrics"] for record in records.read(Path(folder, TINY))}
        for folder in ("results", "here")
    )
    assert ours == others
    assert len(list(Path("runs").rglob("*.safetensors"))) in (1, 2)  # the best so far
    assert len(list(Path("runs").rglob("*"))) == 1 + len(list(Path("runs").rglob("*.safetensors")))


def test_gpus_are_those_of_the_executor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Not of the machine that the command is given on, which may have none."""

    class Full(Queue):
        gpus = 2.0

        def run(self, works: Iterable[Work], *, told: Told, stop: Stop) -> Ended:
            asked = next(iter(works))
            raise ExecutorError(f"no room for {asked.gpus} of a GPU, {asked.arguments[2].device}")
            yield

    monkeypatch.setitem(EXECUTORS._entries, "full", Full)
    monkeypatch.setattr("torch.cuda.get_device_name", None)
    monkeypatch.chdir(tmp_path)
    make_known(monkeypatch, EXPERIMENT)
    command = ["reproduce", "table1", "--preset", "tiny", "--on", "full", "--gpus", "0.25"]
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert "on the queue full" in said
    assert "no room for 0.25 of a GPU, cuda" in said


def test_options_that_would_say_nothing_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(EXECUTORS._entries, "queue", Queue)
    monkeypatch.chdir(tmp_path)
    train = ["reproduce", "table1", "--gpus", "0.5"]
    for command, said in (
        (train, "--gpus: trainings share the GPUs of a cluster, but one has this machine to"),
        ([*train, "--on", "queue"], "--gpus: the trainings take no GPU, for the device is cpu"),
        (["data", "blocksworld", "--workers", "2", "--on", "queue"], "--workers: so many process"),
        (["data", "scenes", "--workers", "2", "--on", "queue"], "--workers: so many processes of"),
    ):
        assert cli.main(command) == 2
        error = capsys.readouterr().err
        assert error.startswith(said)
        assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_ensembles_are_cut_in_the_same_places_when_some_are_done() -> None:
    configs = [puzzle_config("4", loss, seed) for loss in ("H", "SH") for seed in range(5)]
    parts = ensembles(configs, 3)
    assert [len(part) for part in parts] == [3, 3, 3, 1]
    assert sorted(repr(config) for part in parts for config in part) == sorted(map(repr, configs))
    left = [config for part in (parts[0], parts[2], parts[3]) for config in part]
    assert ensembles(left[::-1], 3) == [parts[0], parts[2], parts[3]]
    with pytest.raises(ValueError, match="together: expected at least 1, got 0"):
        ensembles(configs, 0)


def test_files_of_a_user_travel_as_text(tmp_path: Path) -> None:
    """And find each other where they are imported."""
    (tmp_path / "travels_first.py").write_text("VALUE = __file__\n")
    module = run_file("FILE", tmp_path / "travels_first.py")
    texts = texts_of([module.__name__, "setwise.registry", "pytest"])
    assert texts["setwise.registry"] is None
    assert texts["pytest"] is None
    del sys.modules["travels_first"]
    second = {"travels_second": ("from travels_first import VALUE\n", "second.py")}
    try:
        import_texts(second | texts)
        assert str(tmp_path / "travels_first.py") == sys.modules["travels_second"].VALUE
    finally:
        sys.modules.pop("travels_first", None)
        sys.modules.pop("travels_second", None)
        sys.meta_path.pop(0)


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (
            "ray://127.0.0.1:CLOSED",
            "no Ray cluster answers at 127.0.0.1:CLOSED: Connection refused; ",
        ),
        ("ray://nowhere.invalid:1", "no Ray cluster answers at nowhere.invalid:1: "),
        ("ray://127.0.0.1", "expected ray or ray://HOST:PORT, got 'ray://127.0.0.1'"),
        ("ray://:1", "expected ray or ray://HOST:PORT"),
        ("ray://[::1:9", "expected ray or ray://HOST:PORT"),
        ("mars", "executor: unknown 'mars'; known: local, ray"),
        ("local://x", "local has no address"),
    ],
)
def test_an_address_that_does_not_answer_is_one_line(
    place: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    port = str(closed_port())
    place, said = place.replace("CLOSED", port), said.replace("CLOSED", port)
    for command in (["reproduce", "table1"], ["data", "blocksworld"]):
        assert cli.main([*command, "--on", place]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"--on {place}: ")
        assert said in error
        assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_cluster_of_the_environment_that_is_gone_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{closed_port()}")
    with pytest.raises(ExecutorError, match="no Ray cluster answers"), open_executor("ray"):
        pass


@pytest.mark.parametrize("noted", ["OPEN", "CLOSED", "no address", None])
def test_a_cluster_of_this_machine_is_taken_if_it_answers(
    noted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what ``ray start`` notes, in the folder that Ray takes for its own."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as server:
        ports = {"OPEN": server.getsockname()[1], "CLOSED": closed_port()}
        address = f"127.0.0.1:{ports[noted]}" if noted in ports else noted
        if address is not None:
            (tmp_path / "ray").mkdir()
            (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        assert started_here() == (address if noted == "OPEN" else None)


# Slow: it imports PyTorch. test_architecture.py reads that nothing but one file imports Ray.
@pytest.mark.slow
def test_local_work_needs_no_ray() -> None:
    code = """
import sys
sys.modules["ray"] = None
from setwise.cli import main
from setwise.executors import open_executor
import setwise.experiments.run
with open_executor("local") as executor:
    assert not executor.spreads
sys.exit(main(["data", "blocksworld", "--on", "ray"]))
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 2
    assert "this needs ray: " in found.stderr
    assert found.stderr.count("\n") == 1
