"""Work on a real Ray cluster of two nodes, of which machines, workers and drivers are lost."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import pytest

from hard_work import dies, fails, stops, waits
from pictured_scenes import STATES, TINY
from repository import ROOT
from setwise import cli
from setwise.executors import ExecutorError, StoppedError, Work
from setwise.executors.ray_address import started_here
from setwise.experiments import records
from setwise.experiments.config import Config
from setwise.experiments.run import train
from setwise.experiments.saved_networks import load_network
from setwise.experiments.train import TrainingProgress
from setwise.render import render_states
from tiny_experiments import puzzle_config

ray = pytest.importorskip("ray")

# Slow: the processes of a cluster start, and each worker imports PyTorch. The first tier sees the
# same work done here (test_executors.py), and addresses that do not answer.
pytestmark = [
    pytest.mark.slow,
    # Ray does not close the logs of the server for those outside.
    pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning"),
]

OWN = ROOT / "tests" / "extension" / "own_experiment.py"
# A node with a core, without the processes that look after logs and the size of a cluster.
BARE: dict[str, Any] = {"num_cpus": 1, "include_log_monitor": False, "no_monitor": True}
# Long enough to be in the middle when the first evaluation is heard of.
CONFIGS = [puzzle_config(seed=seed, epochs=30, evaluations=10) for seed in range(3)]


@contextlib.contextmanager
def ray_folder(environment: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of Ray's own, with a short name, for there are sockets in it."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment.setenv("RAY_TMPDIR", folder)
        yield


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that serves those outside, too; it has a core, and a GPU that Ray believes in."""
    from ray.cluster_utils import Cluster

    # A node that was killed is missed after five seconds; workers are not the last to be served.
    quick = {"health_check_period_ms": 500, "health_check_failure_threshold": 10}
    quick["worker_niceness"] = 0
    head = BARE | {"num_gpus": 1, "include_dashboard": False, "_system_config": quick}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.MonkeyPatch.context() as environment, ray_folder(environment):
        environment.setenv("RAY_CLIENT_RECONNECT_GRACE_PERIOD", "0")
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # The server for those outside forks while gRPC is at work; see docs/scaling.md.
        environment.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        found: Any = Cluster(
            initialize_head=True, head_node_args=head | {"ray_client_server_port": port}
        )
        environment.setenv("RAY_ADDRESS", found.address)
        found.outside = f"ray://127.0.0.1:{port}"
        yield found
        found.shutdown()


@pytest.fixture(scope="module")
def second(cluster: Any) -> Any:
    """A second node, until `test_what_is_lost_goes_on_from_its_checkpoint` kills it."""
    found = cluster.add_node(**BARE)
    cluster.wait_for_nodes()
    return found


@pytest.fixture(scope="module")
def executor(cluster: Any) -> Iterator[Any]:
    from setwise.executors.ray_cluster import RayExecutor

    found = RayExecutor("ray")
    yield found
    found.close()


@pytest.fixture(scope="module")
def locally(tmp_path_factory: pytest.TempPathFactory) -> dict[str, records.Record]:
    folder = tmp_path_factory.mktemp("locally")
    train(CONFIGS, "cpu", folder, together=1)
    return recorded(folder)


def recorded(folder: Path) -> dict[str, records.Record]:
    """By run, of which there is none twice."""
    found = records.read(folder / "tiny.jsonl")
    assert len({record["run"] for record in found}) == len(found)
    return {record["run"]: record for record in found}


def assert_same(ours: dict[str, records.Record], others: dict[str, records.Record]) -> None:
    """All but when and how long, which is rounded to the same digits."""
    assert ours.keys() == others.keys()
    for run, record in ours.items():
        for name in record.keys() - {"finished", "seconds"}:
            assert record[name] == others[run][name], name


def workers() -> list[psutil.Process]:
    """Processes of this cluster that train, which Ray names by their work."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "".join(process.cmdline()[:1]).startswith("ray::tiny: training"):
                found.append(process)
    return found


def test_stopped_it_keeps_what_is_finished_and_goes_on(
    second: Any, executor: Any, locally: Any, tmp_path: Path
) -> None:
    """What runs is saved; what waits has not begun."""
    runs = tmp_path / "runs"
    options: Any = {"executor": executor, "together": 1, "save_every": 1000}

    def stop() -> bool:
        return (tmp_path / "tiny.jsonl").exists()

    with pytest.raises(StoppedError):
        train(CONFIGS, "cpu", tmp_path, runs, stop=stop, **options)
    assert 1 <= len(recorded(tmp_path)) < 3
    train(CONFIGS, "cpu", tmp_path, runs, **options)
    assert_same(recorded(tmp_path), locally)
    assert not list(runs.rglob("*.ckpt"))


def test_without_shared_folders_it_begins_anew(
    second: Any, executor: Any, locally: Any, tmp_path: Path
) -> None:
    """And networks to keep come back with the results."""
    configs = CONFIGS[:1]
    epochs: list[int] = []

    def watch(configs: list[Config], progress: TrainingProgress) -> None:
        epochs.append(progress.epoch)
        if len(epochs) == 1:
            for mark in tmp_path.glob("runs/.shared.*"):
                mark.unlink()  # what machines look for that share nothing
            workers()[0].kill()

    def keep(results: Any) -> set[str]:
        return {configs[0].identity}

    options: Any = {"executor": executor, "save_every": 0, "watch": watch, "keep": keep}
    train(configs, "cpu", tmp_path, tmp_path / "runs", **options)
    assert epochs.count(3) == 2  # the first evaluation
    run = configs[0].identity
    assert_same(recorded(tmp_path), {run: locally[run]})
    found, network = load_network(tmp_path / "runs" / "tiny" / f"{run}.safetensors")
    assert found == configs[0]
    assert not network.training


def test_pictures_are_the_same(second: Any, executor: Any, tmp_path: Path) -> None:
    settings = replace(TINY, renderer="sketch")
    seen: list[tuple[int, int]] = []
    for folder, place in (("here", None), ("there", executor)):
        render_states(
            settings,
            STATES,
            tmp_path / folder,
            workers=1,
            executor=place,
            progress=lambda *n: seen.append(n),
        )
    assert seen == 2 * [(n, len(STATES)) for n in range(1, len(STATES) + 1)]
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).rglob("*.*")}
        for folder in ("here", "there")
    )
    assert here == there
    assert len(here) == 2 * len(STATES) + 1


def test_what_is_lost_goes_on_from_its_checkpoint(
    cluster: Any, second: Any, executor: Any, locally: Any, tmp_path: Path
) -> None:
    """After which there is one node."""
    told: dict[str, list[int]] = {}

    def watch(configs: list[Config], progress: TrainingProgress) -> None:
        known = len(told)
        told.setdefault(configs[0].identity, []).append(progress.epoch)
        if known < len(told) == 2:  # one on each node, in the middle
            workers()[0].kill()
        if known < len(told) == 3:
            cluster.remove_node(second, allow_graceful=False)

    runs = tmp_path / "runs"
    options: Any = {"executor": executor, "together": 1, "save_every": 0, "watch": watch}
    assert train(CONFIGS, "cpu", tmp_path, runs, **options) == 3
    assert_same(recorded(tmp_path), locally)
    for epochs in told.values():
        assert epochs == sorted(epochs)  # none began again
    assert not [path for path in runs.rglob("*") if path.is_file()]
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (Work("hard work", fails, modules=("hard_work",)), r"^hard work: on .*: no such thing$"),
        (
            Work("hard work", stops, modules=("hard_work",)),
            "^hard work: lost 1 times, last because it stopped on ",
        ),
        (Work("hard work", fails, gpus=2), "needs 1 cores and 2 GPUs of one machine"),
        (
            Work("hard work", dies, modules=("hard_work",)),
            "^hard work: lost 1 times, last because ",
        ),
    ],
    ids=["fails", "stops", "too large", "dies"],
)
def test_what_cannot_be_done_is_told(
    work: Work, message: str, executor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("setwise.executors.ray_cluster._AGAIN", 0)
    with pytest.raises(ExecutorError, match=message):
        list(executor.run([work], told=lambda work, item: None, stop=lambda: False))


def test_shares_of_a_gpu_add_up_to_no_more_than_it(executor: Any, tmp_path: Path) -> None:
    """Two halves work side by side, the third waits for one of them."""
    mark = tmp_path / "enough"
    begun: list[str] = []

    def told(work: Work, item: str) -> None:
        begun.append(work.name)

    looks = 0

    def stop() -> bool:
        """Asked twice a second; some looks after the second has begun, all may end."""
        nonlocal looks
        looks += len(begun) > 1
        if looks == 4:
            mark.touch()
        return False

    works = [
        Work(name, waits, (mark,), cores=0, gpus=0.5, modules=("hard_work",))
        for name in ("one", "two", "three")
    ]
    ended = dict(executor.run(works, told=told, stop=stop))
    assert sorted(begun) == ["one", "three", "two"]
    first, second, third = sorted(ended[work] for work in works)
    assert second[0] < first[1]
    assert third[0] > min(first[1], second[1])
    assert [gpus for _, _, gpus in (first, second, third)] == ["0"] * 3


def test_a_driver_is_killed_and_the_same_command_goes_on(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From outside of the cluster, and with an experiment whose file no worker has.

    One node is enough, the one that is left by now: every command starts workers of its own.
    """
    monkeypatch.chdir(tmp_path)
    program = [sys.executable, "-m", "setwise.cli"]
    command = ["train", str(OWN), "--together", "1", "--save-every", "0", "--device", "cpu"]
    command += ["--losses", "H"]
    driver = subprocess.Popen(
        [*program, *command, "--on", "ray"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert driver.stderr is not None
    while "epoch" not in (line := driver.stderr.readline()):
        assert line, "the driver ended"
    driver.kill()
    driver.stderr.close()
    driver.wait()
    assert len(records.read(Path("results/bags.jsonl"))) < 2
    again = [*program, *command, "--on", cluster.outside]
    went_on = subprocess.run(again, capture_output=True, text=True)
    assert went_on.returncode == 0, went_on.stderr
    assert cli.main([*command, "--results", "local"]) == 0
    ours, others = (
        {record["run"]: record for record in records.read(Path(folder) / "bags.jsonl")}
        for folder in ("results", "local")
    )
    assert len(records.read(Path("results/bags.jsonl"))) == 2
    assert_same(ours, others)
    assert not list(Path("runs").rglob("*.ckpt"))


def test_a_cluster_that_nobody_named_is_left_to_others(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another process started for itself ends with it; what Ray notes is for all to take."""
    assert started_here() == cluster.address
    monkeypatch.delenv("RAY_ADDRESS")
    code = "with open_executor('ray'): print(ray.get_runtime_context().gcs_address)"
    code = f"import ray; from setwise.executors import open_executor\n{code}"
    with ray_folder(monkeypatch):  # where nothing is noted
        taken = subprocess.check_output([sys.executable, "-c", code], text=True).strip()
    assert taken
    assert taken != cluster.address


def test_a_connection_that_is_aborted_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from setwise.executors import ray_cluster

    tried: list[str] = []

    def init(address: str, **options: Any) -> None:
        tried.append(address)
        if len(tried) < needed:
            raise ConnectionAbortedError("Starting Ray client server failed")

    monkeypatch.setattr(ray_cluster.ray, "init", init)
    monkeypatch.setattr(ray_cluster.ray, "shutdown", lambda: tried.append("shutdown"))
    needed = 3
    ray_cluster._connect("ray://host:1")
    assert tried == ["ray://host:1", "shutdown", "ray://host:1"]
    tried.clear()
    needed = 100
    with pytest.raises(ExecutorError, match=r"no connection .*: Starting Ray client server failed"):
        ray_cluster._connect("ray://host:1")
    assert tried == ["ray://host:1", "shutdown"] * 3
