"""Sets from Parquet files: each exactly once, in an order that can be had again, from any place."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import setwise as sw
from setwise.data import SetLoader, write_sets
from setwise.files import atomic_write_text

SETS, GROUP = 403, 20


def examples(count: int = SETS) -> Iterator[dict[str, Any]]:
    """Every element says which set it is of; some sets are empty."""
    for number in range(count):
        elements = torch.full((number % 4, 3), float(number))
        yield {"number": number, "objects": elements, "flags": np.array([number % 2 == 0, True])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data") / "sets"
    assert write_sets(place, examples(), rows_per_group=GROUP, groups_per_file=6) == SETS
    return place


def numbers(loader: SetLoader) -> list[list[int]]:
    return [batch["number"].tolist() for batch in loader]


def test_files_hold_what_was_written(folder: Path) -> None:
    names = [f"sets-{n:05}-of-00004.parquet" for n in range(4)]
    assert sorted(file.name for file in folder.iterdir()) == names
    loader = SetLoader(folder, SETS, shuffle=False)
    assert list(loader.columns) == ["number", "objects", "flags"]
    (batch,) = loader
    elements, valid = sw.mask_sets([row["objects"] for row in examples()])
    assert batch["objects"].equal(elements)
    assert batch["objects_valid"].equal(valid)
    assert batch["number"].tolist() == list(range(SETS))
    assert batch["flags"].dtype == torch.bool
    assert batch["flags"][:, 0].tolist() == [n % 2 == 0 for n in range(SETS)]


@pytest.mark.parametrize(("ranks", "batch"), [(1, 64), (2, 64), (7, 1000)])
def test_all_processes_together_have_every_set_once(folder: Path, ranks: int, batch: int) -> None:
    loaders = [SetLoader(folder, batch, buffer=80, rank=r, ranks=ranks) for r in range(ranks)]
    found = [numbers(loader) for loader in loaders]
    assert sorted(n for batches in found for one in batches for n in one) == list(range(SETS))
    assert {len(batches) for batches in found} == {len(loader) for loader in loaders}
    sizes = {len(one) for batches in found for one in batches}
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch


def test_batches_of_one(tmp_path: Path) -> None:
    """Where one process has a set more than the other, it is in a batch with another."""
    write_sets(tmp_path / "seven", examples(7))
    found = [numbers(SetLoader(tmp_path / "seven", 1, rank=r, ranks=2)) for r in range(2)]
    assert sorted(len(one) for batches in found for one in batches) == [1] * 5 + [2]
    assert sorted(n for batches in found for one in batches for n in one) == list(range(7))


def test_epochs_differ_and_seeds_bring_them_back(folder: Path) -> None:
    first, same, other = (SetLoader(folder, 40, buffer=80, seed=seed) for seed in (3, 3, 4))
    epochs = [numbers(first), numbers(first)]
    assert epochs == [numbers(same), numbers(same)]
    assert epochs[0] != epochs[1]
    assert epochs[0] != numbers(other)
    assert epochs[0][0] != sorted(epochs[0][0])


def test_elements_stay_with_their_sets(folder: Path) -> None:
    for batch in SetLoader(folder, 64, buffer=50):
        sizes = batch["objects_valid"].sum(-1)
        assert sizes.tolist() == (batch["number"] % 4).tolist()
        owners = batch["number"].repeat_interleave(sizes).unsqueeze(-1)
        assert (batch["objects"][batch["objects_valid"]] == owners).all()
        assert not batch["objects"][~batch["objects_valid"]].any()


@pytest.mark.parametrize("stop", [1, 4, 9])
def test_an_epoch_goes_on_where_it_was(folder: Path, stop: int) -> None:
    whole, loader = (SetLoader(folder, 40, buffer=80) for _ in range(2))
    expected = numbers(whole)
    found = [batch["number"].tolist() for _, batch in zip(range(stop), loader, strict=False)]
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = SetLoader(folder, 40, buffer=80)
    resumed.load_state_dict(state)
    assert found + numbers(resumed) == expected
    assert resumed.epoch == 1
    assert numbers(resumed) == numbers(whole)


def read_until(folder: Path, rank: int, state: Path, last: int) -> None:
    """In a process: go on from a state, write one after each batch, and die after the last."""
    loader, seen = SetLoader(folder, 20, workers=2, buffer=100, rank=rank, ranks=2), []
    if state.exists():
        told = json.loads(state.read_text())
        seen = told["seen"]
        loader.load_state_dict(told["state"])
    for batch in loader:
        seen.append(batch["number"].tolist())
        atomic_write_text(state, json.dumps({"seen": seen, "state": loader.state_dict()}))
        if len(seen) == last:
            os.kill(os.getpid(), signal.SIGKILL)


def in_processes(folder: Path, place: Path, *lasts: int) -> list[list[list[int]]]:
    """What two processes have seen that die after so many batches, and are started again."""
    fork = multiprocessing.get_context("fork")
    states = [place / f"{rank}-{len(lasts)}.json" for rank in range(2)]
    for last in (*lasts, 0):
        ranks = [
            fork.Process(target=read_until, args=(folder, rank, state, last))
            for rank, state in enumerate(states)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
            assert process.exitcode == (-signal.SIGKILL if last else 0)
    return [json.loads(state.read_text())["seen"] for state in states]


# Slow because of its processes; the tests above read the same order without them.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers_on_two_processes_that_are_killed(folder: Path, tmp_path: Path) -> None:
    """Every set once, whatever workers had prepared when their process ended."""
    whole = in_processes(folder, tmp_path)
    assert sorted(n for batches in whole for one in batches for n in one) == list(range(SETS))
    assert len(whole[0]) == len(whole[1])
    # After an odd number, the other worker is next.
    assert in_processes(folder, tmp_path, 3, 8) == whole


def cut(file: Path) -> str:
    file.write_bytes(file.read_bytes()[:-300])
    return f"{file}: damaged or cut off, or no Parquet file at all: "


def emptied(file: Path) -> str:
    file.write_bytes(b"")
    return f"{file}: damaged or cut off, or no Parquet file at all: "


def other_type(file: Path) -> str:
    table = pq.read_table(file)
    changed = table.set_column(0, "number", table["number"].cast(pa.int32()))
    pq.write_table(changed, file)
    first = "sets-00000-of-00004.parquet"
    return f"{file}: its columns are not those of {first}: number is int32, not int64"


def column_lost(file: Path) -> str:
    pq.write_table(pq.read_table(file).drop_columns("flags"), file)
    first = "sets-00000-of-00004.parquet"
    return f"{file}: its columns are not those of {first}: flags is missing, not fixed_size_list"


def words(file: Path) -> str:
    table = pq.read_table(file)
    pq.write_table(table.append_column("name", pa.array(["x"] * len(table))), file)
    return f"{file}: column name: expected numbers, or lists of elements that are lists of numbers"


def removed(file: Path) -> str:
    file.unlink()
    return f"{file.parent}: sets-00000-of-00004.parquet is one of 4 files, but there are 3"


@pytest.mark.parametrize("harm", [cut, emptied, other_type, column_lost, words, removed])
def test_files_that_are_refused_when_opened(folder: Path, tmp_path: Path, harm: Any) -> None:
    copied = copy(folder, tmp_path)
    expected = harm(copied / "sets-00002-of-00004.parquet")
    with pytest.raises(ValueError, match="parquet") as refused:
        SetLoader(copied, 10)
    assert str(refused.value).startswith(expected)
    assert "\n" not in str(refused.value)


def flipped(file: Path) -> str:
    content = bytearray(file.read_bytes())
    for place in range(100, 400):
        content[place] ^= 1
    file.write_bytes(content)
    return f"{file}: "


def replaced(file: Path) -> str:
    pq.write_table(pq.read_table(file), file)
    return f"{file}: it was changed after it was opened"


def with_null(file: Path) -> str:
    table = pq.read_table(file)
    numbers = pa.array([None, *range(1, len(table))], pa.int64())
    pq.write_table(table.set_column(0, "number", numbers), file, row_group_size=GROUP)
    return f"{file}: column number: expected a value in every row, 1 null"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("harm", "workers"), [(flipped, 0), (replaced, 0), (with_null, 0), (with_null, 1)]
)
def test_files_that_go_wrong_while_they_are_read(
    folder: Path, tmp_path: Path, harm: Any, workers: int
) -> None:
    copied = copy(folder, tmp_path)
    loader = SetLoader(copied, 10, workers=workers)
    expected = harm(copied / "sets-00000-of-00004.parquet")
    with pytest.raises(ValueError, match="sets-00000") as refused:
        numbers(loader)
    assert str(refused.value).startswith(expected)
    assert "\n" not in str(refused.value)


def test_files_of_others(tmp_path: Path) -> None:
    """Lists without a fixed size, as other programs write them."""
    table = pa.table({"points": [[[1.0, 2.0], [3.0, 4.0]], []], "labels": [[1, 2, 3], [4]]})
    pq.write_table(table, tmp_path / "any.parquet")
    (batch,) = SetLoader(tmp_path / "any.parquet", 2, shuffle=False)
    assert batch["points"].tolist() == [[[1.0, 2.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]]
    assert batch["labels"].tolist() == [[[1], [2], [3]], [[4], [0], [0]]]
    assert batch["labels_valid"].tolist() == [[True] * 3, [True, False, False]]
    # A row group without elements does not say how wide they are.
    pq.write_table(table, tmp_path / "any.parquet", row_group_size=1)
    (batch,) = SetLoader(tmp_path / "any.parquet", 2, shuffle=False)
    assert batch["points"].shape == (2, 2, 2)
    for points in ([[[1.0], [1.0, 2.0]]], [[[1.0]], [[1.0, 2.0]]]):
        uneven = pa.table({"points": points})
        pq.write_table(uneven, tmp_path / "any.parquet", row_group_size=1)
        with pytest.raises(ValueError, match="column points: all elements need as many features"):
            next(iter(SetLoader(tmp_path / "any.parquet", 2)))


def test_a_state_of_another_order_is_refused(folder: Path) -> None:
    state = SetLoader(folder, 64).state_dict()
    with pytest.raises(ValueError, match="state: it is of batch_size 64, this loader has 32"):
        SetLoader(folder, 32).load_state_dict(state)
    with pytest.raises(ValueError, match="state: it is of seed 0, this loader has 1"):
        SetLoader(folder, 64, seed=1).load_state_dict(state)
    with pytest.raises(ValueError, match=r"state: expected what state_dict\(\) gave"):
        SetLoader(folder, 64).load_state_dict({})


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], "examples: expected at least one"),
        ([{"x": torch.ones(2, 3)}, {"y": 1}], "examples: number 1 does not have the fields"),
        ([{"x": torch.ones(2, 3)}, {"x": torch.ones(2, 4)}], "examples: x of number 1 is list"),
        ([{"x": torch.ones(2, 3, dtype=torch.bfloat16)}], "got a tensor of torch.bfloat16"),
        ([{"x": "word"}], "got an array of <U4"),
        ([torch.ones(2, 3)], "examples: expected mappings of names to tensors"),
    ],
)
def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, rows: Any, told: str) -> None:
    with pytest.raises((TypeError, ValueError), match="examples: ") as refused:
        write_sets(tmp_path / "sets", rows)
    assert told in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_bad_calls(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="expected the name of a new folder"):
        write_sets(folder, examples(2))
    with pytest.raises(FileNotFoundError, match=r"expected a folder with files \*\.parquet"):
        SetLoader(tmp_path, 8)
    with pytest.raises(FileNotFoundError):
        SetLoader(tmp_path / "nowhere", 8)
    with pytest.raises(ValueError, match="403 sets are fewer than the 2000 workers"):
        SetLoader(folder, 8, rank=0, ranks=2000)
    with pytest.raises(ValueError, match="rank, ranks: expected both or none"):
        SetLoader(folder, 8, rank=0)


def test_collated_examples() -> None:
    sets = [torch.ones(1, 2), torch.ones(3, 2)]
    elements, valid = sw.mask_sets(sets)
    found = sw.collate_sets(sets)
    assert found[0].equal(elements)
    assert found[1].equal(valid)
    pictures, *found = sw.collate_sets([(torch.zeros(3, 4, 4), one) for one in sets])
    assert pictures.shape == (2, 3, 4, 4)
    assert found[0].equal(elements)
    assert found[1].equal(valid)
    with pytest.raises(ValueError, match="own_valid: is what the mask of own is called"):
        sw.collate_sets([{"own": one, "own_valid": 1} for one in sets])
    with pytest.raises(ValueError, match="number 1 has other fields than the first: 2, expected 1"):
        sw.collate_sets([(1,), (1, 2)])
    with pytest.raises(ValueError, match="examples: expected at least one"):
        sw.collate_sets([])


def copy(folder: Path, place: Path) -> Path:
    copied = place / "copied"
    copied.mkdir()
    for file in folder.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    return copied
