"""Files that survive their writers: records of many processes, and checkpoints."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from setwise.experiments import checkpoint, store

WRITERS, RECORDS = 4, 50


# One of many writers: records of all sizes, some longer than any buffer, by ones and by threes. It
# runs the file of the store alone, which needs no more than Python and `setwise.files`: the package
# would import PyTorch, which takes long.
WRITER = f"""
import runpy, sys, types
from pathlib import Path
sys.modules["setwise"] = types.ModuleType("setwise")
sys.modules["setwise"].__path__ = [{str(Path(store.__file__).parents[1])!r}]
append = runpy.run_path({store.__file__!r})["append"]
path, writer = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
numbers = list(range({RECORDS}))
while numbers:
    count = 3 if len(numbers) % 2 else 1
    some, numbers = numbers[:count], numbers[count:]
    fillings = [f"{{writer}}.{{n}};" * (1 if n % 5 else 4000) for n in some]
    append(path, [dict(writer=writer, number=n, filling=f) for n, f in zip(some, fillings)])
"""


def record_of(writer: int, number: int) -> dict[str, Any]:
    filling = f"{writer}.{number};" * (1 if number % 5 else 4000)
    return {"writer": writer, "number": number, "filling": filling}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results" / "table.jsonl"


# Records


def test_records_come_back_in_the_order_they_were_added(path: Path) -> None:
    records = [{"run": "ä\n", "metrics": {"success": 1 / 3, "loss": None}}, {"run": "b"}, {}]
    store.append(path, records[:2])
    store.append(path, records[2:])
    assert store.read(path) == records


def test_no_file_holds_no_records(path: Path) -> None:
    assert store.read(path) == []


def test_many_processes_lose_nothing_and_interleave_nothing(path: Path) -> None:
    """And whoever reads meanwhile sees whole records only."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for writer in range(WRITERS)
    ]
    for process in writers:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in writers:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    while any(process.poll() is None for process in writers):
        for record in store.read(path):
            assert record == record_of(record["writer"], record["number"])
    for process in writers:
        process.communicate()
        assert process.returncode == 0
    found = store.read(path)
    assert len(found) == WRITERS * RECORDS
    for writer in range(WRITERS):
        own = [record for record in found if record["writer"] == writer]
        assert own == [record_of(writer, number) for number in range(RECORDS)]


@pytest.mark.parametrize("whole", [0, 2])
def test_a_part_of_a_line_is_ignored_and_then_removed(path: Path, whole: int) -> None:
    """As earlier releases left one where they were killed."""
    records = [record_of(0, number) for number in range(whole)]
    store.append(path, records)
    before = path.read_bytes()
    line = json.dumps(record_of(0, 5)).encode()
    for torn in (line[:1], line[:100], line[:-1]):
        path.write_bytes(before + torn)
        assert store.read(path) == records
        assert path.read_bytes() == before + torn
        store.append(path, [{"run": "next"}])
        assert path.read_bytes() == before + b'{"run": "next"}\n'


def test_a_whole_record_without_its_end_is_kept(path: Path) -> None:
    store.append(path, [{"run": "a"}, {"run": "b"}])
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert store.read(path) == [{"run": "a"}, {"run": "b"}]
    store.append(path, [{"run": "c"}])
    assert path.read_text() == '{"run": "a"}\n{"run": "b"}\n{"run": "c"}\n'


def test_a_last_record_longer_than_any_buffer_is_kept(path: Path) -> None:
    long = {"run": "long", "filling": "x" * 3 * 2**20}
    store.append(path, [{"run": "a"}, long])
    store.append(path, [{"run": "b"}])
    assert store.read(path) == [{"run": "a"}, long, {"run": "b"}]


def test_a_run_is_recorded_once(path: Path) -> None:
    """The first record counts, as it does for whoever reads; records of no run are all kept."""
    store.append(path, [{"run": "a", "seed": 0}, {"cost": 1}])
    store.append(path, [{"run": "a", "seed": 1}, {"run": "b"}, {"cost": 1}])
    assert store.read(path) == [{"run": "a", "seed": 0}, {"cost": 1}, {"run": "b"}, {"cost": 1}]


@pytest.mark.parametrize("failing", ["write_text", "replace"])
def test_an_append_is_whole_or_leaves_the_file_as_it_was(
    path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(path, [{"run": "a"}])
    before = path.read_bytes()

    def full(self: Path, *_: Any, **options: Any) -> None:
        self.write_bytes(before[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, failing, full)
        with pytest.raises(OSError, match=r"No space left on device: .*table\.jsonl"):
            store.append(path, [{"run": "b"}, {"run": "c"}])
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]
    store.append(path, [{"run": "b"}, {"run": "c"}])
    assert [record["run"] for record in store.read(path)] == ["a", "b", "c"]


def test_records_may_lie_behind_a_link_and_keep_their_mode(path: Path, tmp_path: Path) -> None:
    store.append(path, [{"run": "a"}])
    path.chmod(0o640)
    link = tmp_path / "link.jsonl"
    link.symlink_to(path)
    store.append(link, [{"run": "b"}])
    assert link.is_symlink()
    assert len(store.read(path)) == 2
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("what", ["folder", "pipe", "link"])
def test_what_is_no_file_is_told_at_once(path: Path, what: str) -> None:
    """A pipe would be waited for without an end."""
    path.parent.mkdir()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    said = "a link to nowhere" if what == "link" else f"expected a file, it is a {what}"
    for act in (store.read, lambda path: store.append(path, [{"run": "a"}])):
        with pytest.raises((OSError, ValueError), match=rf"table\.jsonl(: {said}|')"):
            act(path)
    assert not (path.parent / "nowhere").exists()


@pytest.mark.parametrize(
    "broken",
    [
        *('{"run": "b', "", "{}{}", "[1]", '"run"', "null", '{"x": NaN}', '{"x": -Infinity}'),
        *('{"run": "\\ud800"}', '{"x": ' + "[" * 10**5, '{"x": ' + "9" * 10**4 + "}"),
    ],
    ids=lambda broken: broken[:12],
)
def test_a_broken_line_between_others_is_reported_with_its_place(path: Path, broken: str) -> None:
    path.parent.mkdir()
    path.write_text('{"run": "a"}\n' + broken + '\n{"run": "c"}\n')
    with pytest.raises(ValueError, match=r"table\.jsonl, line 2: not a record"):
        store.read(path)


def test_what_json_cannot_hold_is_refused_and_nothing_is_written(path: Path) -> None:
    store.append(path, [{"run": "a"}])
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        store.append(path, [{"run": "b"}, {"loss": float("nan")}])
    assert path.read_bytes() == before


# Checkpoints


TENSORS = {"weight": torch.arange(6.0).view(2, 3), "step": torch.tensor(3), "on": torch.ones(2) > 0}
FACTS = {"runs": ["a", "b"], "epoch": 3, "history": [{"loss": [0.1, float("nan")]}]}


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "state.ckpt"
    checkpoint.write(path, TENSORS, FACTS)
    tensors, facts = checkpoint.read(path)
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert tensors[name].equal(tensor)
    assert repr(facts) == repr(FACTS)  # NaN is unequal to itself


def test_views_are_saved_as_what_they_show(tmp_path: Path) -> None:
    """One member of a stack, transposed, and the stack itself."""
    stack = torch.arange(12.0).view(2, 2, 3)
    path = tmp_path / "state.ckpt"
    checkpoint.write(path, {"member": stack[1].mT, "stack": stack.clone()}, {})
    tensors, _ = checkpoint.read(path)
    assert tensors["member"].tolist() == stack[1].mT.tolist()
    assert tensors["stack"].equal(stack)


def test_a_failed_write_leaves_the_old_checkpoint_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.ckpt"
    checkpoint.write(path, TENSORS, FACTS)
    before = path.read_bytes()

    def full_disk(unfinished: Path, content: bytes) -> None:
        with unfinished.open("wb") as file:
            file.write(content[: len(content) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "write_bytes", full_disk)
    with pytest.raises(OSError, match="no space"):
        checkpoint.write(path, {"weight": torch.zeros(9)}, {})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_truncated_checkpoint_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "state.ckpt"
    checkpoint.write(path, TENSORS, FACTS)
    whole = path.read_bytes()
    for length in (0, 5, 8, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"state\.ckpt: damaged"):
            checkpoint.read(path)


def test_tensors_of_another_program_are_no_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(TENSORS, path)
    with pytest.raises(ValueError, match=r"model\.safetensors: not a checkpoint of setwise"):
        checkpoint.read(path)
