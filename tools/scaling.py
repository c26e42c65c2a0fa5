"""The measured numbers of docs/scaling.md, from benchmarks/records.

python -m tools.scaling    # writes them
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from setwise.files import atomic_write_text
from tools.markdown import number, share, with_blocks, wrapped

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "scaling.md"
EXECUTORS = ROOT / "benchmarks" / "records" / "executors-cpu.json"


def cluster(record: dict[str, Any]) -> str:
    """What Ray costs."""
    local, ray = record["local"], record["ray"]
    same = "the same to the last digit" if record["same_records"] else "not the same"
    overhead = record["overhead"]
    compared = f"{share(abs(overhead))} {'more' if overhead >= 0 else 'less'}"
    return wrapped(
        f"The {record['runs']} networks of {record['experiment']}, {record['together']} at a time "
        f"for {record['epochs']} epochs, took {number(local['seconds'])} s in one process and "
        f"{number(ray['seconds'])} s as {len(ray['trainings'])} tasks on a cluster of one core, "
        f"both at the same time, so that the rest of the machine took as much from either: "
        f"{compared}, for tasks of {number(fmean(ray['trainings']))} s on average. Their records "
        f"are {same}. A task that does nothing takes {number(1000 * ray['piece_seconds'])} ms, "
        f"and Ray and its first worker {number(ray['start_seconds'])} s to start."
    )


def page(text: str) -> str:
    """The text of the page with the numbers of the records."""
    return with_blocks(text, PAGE.name, {"cluster": cluster(json.loads(EXECUTORS.read_text()))})


if __name__ == "__main__":
    atomic_write_text(PAGE, page(PAGE.read_text()))
