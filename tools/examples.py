"""What the short examples print at full size: recorded by running them, and shown in the documents.

    python -m tools.examples multisets points   # run these, and record what they print
    python -m tools.examples                    # write the documents from the record

The documents are the header of each example and the table of docs/first-hour.md.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from setwise import environment
from setwise.files import atomic_write_text
from tools.markdown import markdown, with_blocks

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "results" / "examples"
PAGE = ROOT / "docs" / "first-hour.md"
BLOCK = "examples"
PRINTED = "This is what it printed:"
# What each is about; the order is that of the table.
EXAMPLES = {
    "points": "Points in space, from a cloud to a code and back",
    "multisets": "Bags of digits, from counts to the bag",
    "own_facts": "A family tree of 72 clauses, and its rule",
    "lights_out": "A planning world of one's own",
    "export": "Export to ONNX, with ONNX Runtime beside it",
}


def record(name: str) -> None:
    """Run an example at full size, and keep what it prints."""
    command = [sys.executable, str(ROOT / "examples" / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    ran_on = environment.describe(torch.device("cpu"))
    found = {"printed": done.stdout.strip().splitlines()[-1], "environment": ran_on}
    atomic_write_text(RECORDS / f"{name}.json", json.dumps(found, indent=1) + "\n")


def recorded(name: str) -> dict[str, Any]:
    """What is kept of an example."""
    found: dict[str, Any] = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def page(text: str) -> str:
    """The page with its table made anew."""
    rows = [
        [f"{about}: [`{name}.py`](../examples/{name}.py)", recorded(name)["printed"]]
        for name, about in EXAMPLES.items()
    ]
    table = "".join(f"{line}\n" for line in markdown(["", "it prints"], rows))
    return with_blocks(text, PAGE.name, {BLOCK: table})


def header(name: str, text: str) -> str:
    """The text of an example with what it printed in its header."""
    return re.sub(rf"({PRINTED}\n\n +).*", lambda m: m[1] + recorded(name)["printed"], text)


def main(names: list[str]) -> None:
    for name in names:
        record(name)
    if names:
        return
    atomic_write_text(PAGE, page(PAGE.read_text(encoding="utf-8")))
    for name in EXAMPLES:
        path = ROOT / "examples" / f"{name}.py"
        atomic_write_text(path, header(name, path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main(sys.argv[1:])
