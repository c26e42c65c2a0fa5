"""A million sets from Parquet files, by two workers on each of two processes, and how fast.

Run ``python benchmarks/streaming.py``; it writes the record ``benchmarks/records/streaming.json``,
from which ``python -m tools.scaling`` writes its part of docs/scaling.md. Three things are done:

- an epoch on two processes, and once more: every set exactly once, in the same order;
- the same epoch, both processes killed in the middle of it and started again: no other order;
- sets a second, beside the loader of PyTorch with all sets in memory. The two take turns; compare
  them with each other, not with those of another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

import setwise as sw
from setwise.data import SetLoader, write_sets
from setwise.environment import describe
from setwise.files import atomic_write, atomic_write_text

RECORD = Path(__file__).parent / "records" / "streaming.json"
RANKS, WORKERS, BATCH, FEATURES, MOST = 2, 2, 256, 8, 9
EVERY = 100  # batches between two states


def examples(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Sets of one to nine elements, each with its number."""
    random = np.random.default_rng(seed)
    done = 0
    while done < count:
        sizes = random.integers(1, MOST + 1, min(10_000, count - done))
        values = random.random((sizes.sum(), FEATURES), np.float32)
        for elements in np.split(values, sizes.cumsum()[:-1]):
            yield {"number": np.int64(done), "objects": elements}
            done += 1


def consume(folder: Path, place: Path, rank: int) -> None:
    """An epoch on one process, from the last state that is written at the place."""
    loader = SetLoader(folder, BATCH, workers=WORKERS, rank=rank, ranks=RANKS)
    seen: list[NDArray[np.int64]] = []
    if place.exists():
        with np.load(place) as file:
            seen = [file["seen"]]
            loader.load_state_dict(json.loads(str(file["state"])))
    if loader.epoch:  # it was finished before the kill
        return
    for batch in loader:
        seen.append(batch["number"].numpy())
        state = loader.state_dict()
        if state["batches"] % EVERY == 0:  # at the end, too, where a new epoch begins
            with atomic_write(place) as unfinished, unfinished.open("wb") as file:
                np.savez(file, seen=np.concatenate(seen), state=json.dumps(state))


def epoch(folder: Path, places: list[Path], *, kill_after: int | None = None) -> int:
    """All processes to the end of an epoch; how many sets they had when they were killed."""
    killed = 0
    while True:
        command = [sys.executable, __file__, "--consume", str(folder)]
        ranks = [
            subprocess.Popen([*command, str(place), "--rank", str(rank)])
            for rank, place in enumerate(places)
        ]
        if kill_after is None:
            if sum(process.wait() != 0 for process in ranks):
                raise RuntimeError("a process failed")
            return killed
        while min(progress(place) for place in places) < kill_after:
            if any(process.poll() for process in ranks):
                raise RuntimeError("a process failed")
            time.sleep(0.2)
        for process in ranks:
            process.send_signal(signal.SIGKILL)
            process.wait()
        killed, kill_after = sum(progress(place) for place in places), None


def progress(place: Path) -> int:
    return len(sequence(place)) if place.exists() else 0


def sequence(place: Path) -> NDArray[np.int64]:
    with np.load(place) as file:
        seen: NDArray[np.int64] = file["seen"]
    return seen


def exactly_once(count: int, folder: Path, scratch: Path) -> dict[str, Any]:
    """Three epochs of all sets: one, its like, and one that is killed."""
    epochs, killed = [], 0
    for name in ("first", "again", "killed"):
        places = [scratch / f"{name}-{rank}.npz" for rank in range(RANKS)]
        killed = epoch(folder, places, kill_after=count // 5 if name == "killed" else None)
        epochs.append([sequence(place) for place in places])
        print(name, [len(seen) for seen in epochs[-1]], flush=True)
    times = np.bincount(np.concatenate(epochs[0]), minlength=count)
    same = [
        all(np.array_equal(ours, first) for ours, first in zip(other, epochs[0], strict=True))
        for other in epochs[1:]
    ]
    return {
        "sets": count,
        "ranks": RANKS,
        "workers": WORKERS,
        "seen once": int((times == 1).sum()),
        "same order again": same[0],
        "sets before the kill": killed,
        "same order after the kill": same[1],
    }


def speeds(folder: Path, count: int, repeats: int) -> list[dict[str, Any]]:
    """Sets a second of both loaders, with and without workers: medians."""
    memory = [
        {"number": torch.tensor(int(row["number"])), "objects": torch.from_numpy(row["objects"])}
        for row in examples(count)
    ]
    rows = []
    for workers in (0, WORKERS):
        loaders: dict[str, Any] = {
            "SetLoader": SetLoader(folder, BATCH, workers=workers),
            "in memory": DataLoader(
                memory,  # type: ignore[arg-type]
                BATCH,
                shuffle=True,
                num_workers=workers,
                collate_fn=sw.collate_sets,
            ),
        }
        found: dict[str, list[float]] = {name: [] for name in loaders}
        for _ in range(repeats):
            for name, loader in loaders.items():
                found[name].append(count / seconds(loader))
        for name, all_of_them in found.items():
            speed = statistics.median(all_of_them)
            rows.append({"loader": name, "workers": workers, "sets_per_s": speed})
            print(rows[-1], flush=True)
    return rows


def seconds(batches: Iterable[Any]) -> float:
    start = time.perf_counter()
    for _ in batches:
        pass
    return time.perf_counter() - start


def main(arguments: list[str] | None = None) -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", type=int, default=1_000_000)
    parser.add_argument("--timed", type=int, default=200_000, help="sets that are timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--consume", type=Path, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.consume:
        folder, place = options.consume
        consume(folder, place, options.rank)
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder, timed = Path(scratch) / "sets", Path(scratch) / "timed"
        start = time.perf_counter()
        write_sets(folder, examples(options.sets))
        header = {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            **describe(torch.device("cpu")),
            "load": os.getloadavg()[0],
            "batch": BATCH,
            "features": FEATURES,
            "elements": [1, MOST],
            "megabytes": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
            "written_per_s": options.sets / (time.perf_counter() - start),
        }
        print(header, flush=True)
        write_sets(timed, examples(options.timed))
        epochs = exactly_once(options.sets, folder, Path(scratch))
        record = {
            "header": header,
            "epochs": epochs,
            "rows": speeds(timed, options.timed, options.repeats),
        }
        atomic_write_text(options.output, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
