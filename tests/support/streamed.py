"""One of two processes that read sets by two workers; a child of it is killed again and again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ranks import run_as_rank
from setwise.data import SetLoader
from setwise.files import atomic_write_text


def loader_of(folder: str, rank: int) -> SetLoader:
    return SetLoader(folder, 20, workers=2, buffer=100, rank=rank, ranks=2)


def child(folder: str, rank: int, state: Path, batches: int) -> None:
    """Go on from a state, write what was seen after each batch, and die in the middle."""
    loader, seen = loader_of(folder, rank), []
    if state.exists():
        told = json.loads(state.read_text())
        seen = told["seen"]
        loader.load_state_dict(told["state"])
    for batch in loader:
        seen.append(batch["number"].tolist())
        atomic_write_text(state, json.dumps({"seen": seen, "state": loader.state_dict()}))
        if len(seen) == batches:
            os.kill(os.getpid(), 9)
        if loader.epoch:
            break


def work(rank: int, ranks: int) -> dict[str, Any]:
    folder = sys.argv[1]
    whole = [batch["number"].tolist() for batch in loader_of(folder, rank)]
    with tempfile.TemporaryDirectory() as place:
        state, died = Path(place) / "state.json", []
        for batches in (5, 16, 0):  # an odd number, so that the other worker is next
            again = [sys.executable, __file__, folder, str(rank), str(state), str(batches)]
            died.append(subprocess.run(again).returncode)
        pieces = json.loads(state.read_text())["seen"]
    return {"whole": whole, "died": died[:2], "in pieces": pieces}


if __name__ == "__main__":
    if len(sys.argv) > 2:
        child(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]))
    else:
        run_as_rank(work)
