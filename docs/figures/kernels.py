"""Write the table and the picture of docs/kernels.md from the benchmark record."""

from __future__ import annotations

import json
from pathlib import Path

from setwise.bench import document, show

ROOT = Path(__file__).parent.parent.parent
RECORD = ROOT / "benchmarks" / "records" / "losses-h200.json"


def main() -> None:
    """Update docs/kernels.md and docs/figures/kernels.png."""
    page = ROOT / "docs" / "kernels.md"
    page.write_text(document.update(page, RECORD))
    if not RECORD.exists():
        return
    record = json.loads(RECORD.read_text())
    show.draw(record["header"], record["rows"], ROOT / "docs" / "figures" / "kernels.png")


if __name__ == "__main__":
    main()
