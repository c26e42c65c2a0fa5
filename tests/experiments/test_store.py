"""Files that survive their writers: records of many processes, and checkpoints."""

from __future__ import annotations

import json
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
# runs the file of the store alone, which needs no more than Python: PyTorch takes long to import.
WRITER = f"""
import runpy, sys
from pathlib import Path
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
def test_the_line_of_a_killed_writer_is_ignored_and_then_removed(path: Path, whole: int) -> None:
    records = [record_of(0, number) for number in range(whole)]
    store.append(path, records)
    before = path.read_bytes()
    line = json.dumps(record_of(0, 5)).encode()
    for torn in (line[:1], line[:100], line):  # the last lacks nothing but its end
        path.write_bytes(before + torn)
        assert store.read(path) == records
        assert path.read_bytes() == before + torn
        store.append(path, [{"run": "next"}])
        assert path.read_bytes() == before + b'{"run": "next"}\n'


@pytest.mark.parametrize("broken", ['{"run": "b', "", "{}{}"])
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

    def full_disk(tensors: Any, unfinished: Path, metadata: Any) -> None:
        unfinished.write_bytes(before[: len(before) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", full_disk)
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
