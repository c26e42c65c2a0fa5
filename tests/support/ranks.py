"""Processes that each hold a part of the same sets, and what each of them finds.

Run in processes of their own by `launch`: one start of so many serves all cases of a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def launch(script: Path, ranks: int, *arguments: str, limit: float = 240.0) -> list[Any]:
    """Run a script as so many processes; the result is what each of them passed to `tell`."""
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(ranks):
            environment = os.environ | {"RANK": str(rank), "WORLD_SIZE": str(ranks)}
            environment |= {"MEETING": f"{folder}/meeting", "TOLD": f"{folder}/{rank}.json"}
            environment |= {"OMP_NUM_THREADS": "1"}
            command = [sys.executable, str(script), *arguments]
            processes.append(
                subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
            )
        errors = []
        try:
            errors = [process.communicate(timeout=limit)[1] for process in processes]
        finally:
            for process in processes:
                process.kill()
        failed = [e for e, process in zip(errors, processes, strict=True) if process.returncode]
        assert not failed, "\n".join(failed)
        return [json.loads(Path(f"{folder}/{rank}.json").read_text()) for rank in range(ranks)]


def run_as_rank(work: Callable[[int, int], Any], backend: str = "gloo") -> None:
    """In a process of `launch`: join the others, and tell what ``work(rank, ranks)`` gives."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        backend, init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=ranks
    )
    torch.set_num_threads(1)
    Path(os.environ["TOLD"]).write_text(json.dumps(work(rank, ranks)))
    dist.destroy_process_group()
