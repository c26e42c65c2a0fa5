"""Trainings on a Ray cluster beside the same trainings in one process: what Ray costs.

Run ``python benchmarks/executors.py``. After some minutes it writes the record
``benchmarks/records/executors-cpu.json``, from which ``python -m tools.scaling`` writes the numbers
of docs/scaling.md. The quick preset of Table 1 is trained twice, some networks at a time, by a
process of its own each: in that process, and as tasks of a cluster with one core. Both run at once,
so that whatever else the machine does takes as much from one as from the other. What each took is
from the first training to the last record; that Ray and its workers start is counted apart.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from setwise.environment import current_commit, describe
from setwise.executors import Executor, LocalExecutor, Work
from setwise.experiments import records
from setwise.experiments.recipes import EXPERIMENTS
from setwise.experiments.run import train
from setwise.files import atomic_write_text

RECORD = Path(__file__).parent / "records" / "executors-cpu.json"
EXPERIMENT = EXPERIMENTS["table1-quick"]
TOGETHER = 4  # networks: about a minute of one core
PLACES = ("local", "ray")
STARTED = "started"  # a file: both begin when Ray can
SMALL = 200  # pieces of work that do nothing, to time one


def time_nothing(executor: Executor, pieces: int) -> float:
    """Seconds for so many pieces of work."""

    def nothing(*, tell: Any, stop: Any) -> None:
        """What travels as it is written here."""

    began = time.perf_counter()
    works = [Work("nothing", nothing) for _ in range(pieces)]
    for _ in executor.run(works, told=lambda work, item: None, stop=lambda: False):
        pass
    return time.perf_counter() - began


def measure(place: str, folder: Path, epochs: int | None) -> dict[str, Any]:
    """Train everything in one place; what it took."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    executor: Executor = LocalExecutor()
    if place == "ray":
        import ray

        from setwise.executors.ray_cluster import RayExecutor

        began = time.perf_counter()
        # Workers as they are here: by default they stand back behind other programs.
        usual = {"worker_niceness": 0}
        options: dict[str, Any] = {
            "include_dashboard": False,
            "log_to_driver": False,
            "_system_config": usual,
        }
        ray.init("local", num_cpus=1, **options)
        executor = RayExecutor()
        time_nothing(executor, 1)
        found["start_seconds"] = time.perf_counter() - began
        found["piece_seconds"] = time_nothing(executor, SMALL) / SMALL
        (folder.parent / STARTED).touch()
    while not (folder.parent / STARTED).exists():
        time.sleep(0.1)
    configs = EXPERIMENT.configs()
    if epochs is not None:
        configs = [replace(c, schedule=replace(c.schedule, epochs=epochs)) for c in configs]
    began = time.perf_counter()
    train(configs, "cpu", folder, folder / "runs", executor=executor, together=TOGETHER)
    found["seconds"] = time.perf_counter() - began
    executor.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument(
        "--epochs", type=int, help="fewer where it is slow; default: those of the preset"
    )
    parser.add_argument("--commit", default=current_commit(), help="default: asked of git")
    options = parser.parse_args()
    if options.commit is None:
        parser.error("--commit: git knows none of this code; name the one that is measured")
    context = multiprocessing.get_context("spawn")
    with (
        tempfile.TemporaryDirectory() as place,
        ProcessPoolExecutor(len(PLACES), mp_context=context) as pool,
    ):
        folders = {name: Path(place) / name for name in PLACES}
        begun = {
            name: pool.submit(measure, name, folder, options.epochs)
            for name, folder in folders.items()
        }
        measured = {name: begun[name].result() for name in reversed(PLACES)}
        runs = {
            name: {r["run"]: r for r in records.read(folder / f"{EXPERIMENT.name}.jsonl")}
            for name, folder in folders.items()
        }
    content = {
        "experiment": EXPERIMENT.name,
        "runs": len(runs["local"]),
        "epochs": options.epochs or EXPERIMENT.configs()[0].schedule.epochs,
        "together": TOGETHER,
        **{name: measured[name] | _trainings(runs[name]) for name in PLACES},
        "overhead": measured["ray"]["seconds"] / measured["local"]["seconds"] - 1,
        "same_records": _comparable(runs["local"]) == _comparable(runs["ray"]),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "environment": describe(torch.device("cpu"), options.commit, threads=1),
    }
    atomic_write_text(options.output, json.dumps(content, indent=1) + "\n")
    print(json.dumps(content, indent=1))


def _trainings(runs: dict[str, records.Record]) -> dict[str, Any]:
    """The seconds of each training, which its networks share."""
    return {
        "trainings": [s for _, s in sorted({(r["ensemble"], r["seconds"]) for r in runs.values()})]
    }


def _comparable(runs: dict[str, records.Record]) -> dict[str, Any]:
    return {run: (record["metrics"], record["history"]) for run, record in runs.items()}


if __name__ == "__main__":
    main()
