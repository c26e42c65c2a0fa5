"""Write docs/results.md and its pictures from the records in results/."""

from __future__ import annotations

from pathlib import Path

from setwise.report import document

ROOT = Path(__file__).parent.parent.parent


def main() -> None:
    """Update docs/results.md and the pictures of tables in docs/figures/."""
    document.write(ROOT / "docs" / "results.md", ROOT / "results")


if __name__ == "__main__":
    main()
