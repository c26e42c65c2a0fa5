"""Write the numbers and the picture of docs/kernels.md from the benchmark records."""

from __future__ import annotations

import json
from pathlib import Path

from setwise.bench import document, show

ROOT = Path(__file__).parent.parent.parent
RECORDS = ROOT / "benchmarks" / "records"


def main() -> None:
    """Update docs/kernels.md and docs/figures/kernels.png."""
    page = ROOT / "docs" / "kernels.md"
    page.write_text(document.update(page, RECORDS))
    record = json.loads((RECORDS / document.LOSSES).read_text())
    show.draw(record["header"], record["rows"], Path(__file__).with_suffix(".png"))


if __name__ == "__main__":
    main()
