"""Losses and files: cases that hostile use once broke, each where a user would meet it.

All of them failed at 60ba701, before they were mended. They use nothing of the library that is
newer, so that they still run there. The number in a name says of which kind a case is: 1 to 3 are
wrong numbers, 4 full disks and two processes, 5 names, 6 what a kill leaves behind, 7 files from
outside; 8 and 9, in test_named_commands.py, are strange calls, and what takes too much memory.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import resource
import signal
import struct
import sys
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import setwise as sw
from hostile import join_safetensors, split_safetensors
from limits import FORKS, failures, within_limits
from made_small import small_demo
from setwise import cli
from setwise.cli.watch import Watcher
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments import checkpoint, records, store
from setwise.experiments import train as trains
from setwise.experiments.recipes import demo
from setwise.experiments.run import train
from setwise.experiments.saved_networks import load_network, save_network
from setwise.experiments.train import Training
from setwise.files import atomic_write_text
from setwise.planning.learned import choose_network
from setwise.planning.recorded import write_plan
from setwise.render import files as rendered
from tiny_experiments import puzzle_config
from tiny_recipe import OWN

pytestmark = pytest.mark.slow  # each kind is in the first tier, beside what it is about
Captured = pytest.CaptureFixture[str]
LEARN = importlib.import_module("setwise.demo.learn")
TRAIN = ["train", "own.py", "--device", "cpu", "--commit", "c", "--save-every", "1e-9"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one, of a process that has not run an own.py yet."""
    monkeypatch.delitem(sys.modules, "own", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def saves_every(monkeypatch: pytest.MonkeyPatch) -> float:
    """The demonstration is small, and afterwards as it was; how often it saves if it is not."""
    before: float = getattr(LEARN, "SAVE_EVERY", 300.0)
    monkeypatch.setattr(demo, "config", demo.config)
    monkeypatch.setattr(LEARN, "SAVE_EVERY", before, raising=False)
    small_demo()
    return before


# 1 to 3: wrong numbers


def clusters(apart: float) -> tuple[torch.Tensor, torch.Tensor, sw.Features]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 256, 3, generator=generator)
    x[:, 128:] += apart
    y = x + 0.05 * torch.randn(x.shape, generator=generator)
    return y, x, sw.Features(sw.Gaussian(3, scale=0.1))


@pytest.mark.parametrize(
    "loss", ["set_average", "hausdorff", "assignment_cross_entropy", "set_cross_entropy"]
)
def test_1_far_from_the_origin(loss: str) -> None:
    y, x, features = clusters(1000)
    single, exact = (
        getattr(sw, loss)(y.to(kind), x.to(kind), features).item()
        for kind in (torch.float32, torch.float64)
    )
    assert single == pytest.approx(exact, rel=1e-5)


def test_1_a_gradient_far_from_the_origin() -> None:
    """A hundred away it was wrong by 29%."""
    y, x, features = clusters(100)
    found = []
    for kind in (torch.float32, torch.float64):
        of = y.to(kind).requires_grad_()
        found += torch.autograd.grad(sw.set_average(of, x.to(kind), features), of)
    single, exact = found
    assert (single - exact).norm() < 1e-4 * exact.norm()


def test_2_weights_of_a_target_at_a_small_temperature() -> None:
    y = torch.zeros(1, 4, 32, requires_grad=True)
    loss = sw.set_cross_entropy(y, torch.ones(1, 1, 32), temperature=1e-6)
    (gradient,) = torch.autograd.grad(loss, y)
    torch.testing.assert_close(gradient, torch.full_like(gradient, -0.125))


def test_3_a_training_has_threads_of_its_own() -> None:
    """Whatever the caller's number is: the last bits depend on it, and then the results."""
    seen, before = set(), torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        Training([puzzle_config()], "cpu").run(lambda _: seen.add(torch.get_num_threads()))
    finally:
        torch.set_num_threads(before)
    assert seen == {1}


# 4: a full disk, and two processes


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may grow beyond so many bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_4_an_append_that_finds_room_for_half(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    store.append(path, [{"run": "a"}])
    before = path.read_bytes()
    new = [{"run": "b"}, {"run": "c"}]
    with room_for(2 * len(before)), pytest.raises(OSError, match="File too large"):
        store.append(path, new)
    assert path.read_bytes() == before


def test_4_a_checkpoint_that_finds_no_room(folder: Path, capsys: Captured) -> None:
    Path("own.py").write_text(OWN)
    with room_for(3000):
        assert cli.main(TRAIN) == 2
    assert "File too large" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("folder", "saves_every")
def test_4_a_demo_that_finds_no_room(capsys: Captured) -> None:
    with room_for(3000):
        assert cli.main(["demo"]) == 2
    assert "File too large" in capsys.readouterr().err.splitlines()[-1]


def test_4_a_last_record_without_a_newline(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('{"run": "a"}')
    store.append(path, [{"run": "b"}])
    assert [record["run"] for record in store.read(path)] == ["a", "b"]


def test_4_two_that_train_the_same(tmp_path: Path) -> None:
    """The second begins and ends while the first is at work."""
    configs = [puzzle_config(seed=seed) for seed in (0, 1)]
    call = ("cpu", tmp_path / "results", tmp_path / "runs")

    def meanwhile(_: Any, progress: Any) -> None:
        if progress.epoch == 4:
            train(configs[:1], *call, commit="c")

    train(configs, *call, commit="c", watch=meanwhile)
    found = [record["run"] for record in records.read(tmp_path / "results" / "tiny.jsonl")]
    assert sorted(found) == sorted(config.identity for config in configs)


# 5: names


def content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", [".", "..", "../other", "", "/", "a/../../b", "-x", "x" * 300])
def test_5_the_name_of_a_problem(name: str, tmp_path: Path, capsys: Captured) -> None:
    """One named . made the command delete recorded plans and other files, with exit code 0."""
    network, plans = tmp_path / "net", tmp_path / "deep" / "plans"
    save_network(network, Training([puzzle_config()], "cpu"), 0)
    write_plan(plans / "other", np.zeros((1, 2, 2, 3), np.uint8), ["of somebody"], {})
    (plans / "plan.json").write_text("{}")  # what the folder of a plan holds
    file = tmp_path / "problems.json"
    file.write_text(json.dumps([{"name": name, "init": [0, 1, 2, 3], "goal": [0, 1, 2, 3]}]))
    before = content(tmp_path)
    command = ["plan", "puzzle", "--network", str(network), "--problem", str(file)]
    code = cli.main([*command, "--output", str(tmp_path / "out"), "--record", str(plans)])
    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith(f"{file}: problem 0: name: expected one that files can have")
    assert said.count("\n") == 1
    assert content(tmp_path) == before


def test_5_a_link_in_the_place_of_a_temporary_file(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "x.json"
    victim.write_text("theirs")
    path.with_name(f".{path.name}.{os.getpid()}").symlink_to(victim)
    atomic_write_text(path, "ours")
    assert (victim.read_text(), path.read_text()) == ("theirs", "ours")


def test_5_a_report_in_the_place_of_another_file(folder: Path, capsys: Captured) -> None:
    Path("notes.html").write_text("<!doctype html>\nmine")
    assert cli.main(["report", "--output", "notes.html"]) == 2
    assert Path("notes.html").read_text() == "<!doctype html>\nmine"


# 6: what a kill leaves behind; that of the planner is in test_named_commands.py


def write_and_die(path: Path) -> None:
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    checkpoint.write(path, {"x": torch.zeros(1)}, {})


def test_6_a_kill_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    writer = FORKS.Process(target=write_and_die, args=(path,))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    checkpoint.write(path, {"x": torch.zeros(1)}, {})
    assert list(tmp_path.iterdir()) == [path]


def test_6_a_demo_that_ends_in_its_first_minute(
    folder: Path, saves_every: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on six seconds each time it is looked at."""
    clock = SimpleNamespace(perf_counter=itertools.count(step=6.0).__next__)
    monkeypatch.setattr(LEARN, "SAVE_EVERY", saves_every)
    monkeypatch.setattr(trains, "time", clock)

    def ended(self: Watcher, configs: Any, progress: Any) -> None:
        if progress.epoch == progress.epochs:
            raise SystemExit

    monkeypatch.setattr(Watcher, "__call__", ended)
    with pytest.raises(SystemExit):
        cli.main(["demo", "--output", "demo"])
    assert len(list(Path("demo").glob("*.ckpt"))) == 1


# 7: files from outside


def saved(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_network(path, Training([puzzle_config()], "cpu"), 0)
    return path


def refusal(path: Path) -> str:
    try:
        load_network(path)
    except (ValueError, OSError) as error:
        return str(error)
    return "loaded"


def test_7_a_network_of_impossible_width(tmp_path: Path) -> None:
    header, body = split_safetensors(saved(tmp_path / "net").read_bytes())
    facts = json.loads(header["__metadata__"]["facts"])
    facts.pop("sha256", None)
    facts["config"]["network"]["element_widths"] = [10**12]
    header["__metadata__"]["facts"] = json.dumps(facts)
    (tmp_path / "net").write_bytes(join_safetensors(header, body))
    found = within_limits(refusal, [tmp_path / "net"], seconds=20)
    assert not failures(found)
    assert str(found[0].value).startswith(f"{tmp_path / 'net'}: ")


def test_7_what_is_no_file(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("pipe", "folder", "link")]
    os.mkfifo(paths[0])
    paths[1].mkdir()
    paths[2].symlink_to("nowhere")
    found = within_limits(refusal, paths, seconds=5)
    assert not failures(found)
    for one in found:
        assert str(one.value).startswith(f"{one.case}: ")


def test_7_bad_networks_beside_a_good_one(tmp_path: Path) -> None:
    good = saved(tmp_path / "runs" / "tiny" / "good.safetensors")
    good.with_name("bad.safetensors").write_bytes(b"{}")
    good.with_name("folder.safetensors").mkdir()
    good.with_name("link.safetensors").symlink_to("nowhere")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which name them
        assert choose_network("puzzle", tmp_path / "runs") == good


def test_7_a_checkpoint_that_lacks_a_tensor(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    Training([puzzle_config()], "cpu", path).run()
    tensors, facts = checkpoint.read(path)
    del tensors["losses"]
    checkpoint.write(path, tensors, facts)
    with pytest.raises(ValueError, match=r"x\.ckpt: .*losses"):
        Training([puzzle_config()], "cpu", path).run()


def test_7_an_archive_that_claims_a_terabyte(tmp_path: Path) -> None:
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000,), }\n"
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w") as archive:
        member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text
        for name in ("images", "bboxes", "picsize", "transitions"):
            archive.writestr(f"{name}.npy", member)
    with pytest.raises(ValueError, match=r"x\.npz: "):
        BlocksworldArchive.read(path)


def test_7_records_deeper_than_any_stack(folder: Path, capsys: Captured) -> None:
    Path("own.py").write_text(OWN)
    Path("results").mkdir()
    Path("results/own.jsonl").write_text("[" * 10**5 + "\n")
    assert cli.main(TRAIN) == 2
    assert "results/own.jsonl, line 1: " in capsys.readouterr().err


def test_7_a_folder_of_pictures_whose_settings_are_none(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("[" * 10**5)
    with pytest.raises(ValueError, match=r"settings\.json"):
        rendered.prepare(tmp_path, {"seed": 0})
