"""Write docs/results.md, its pictures and the numbers of README.md from the records in results/."""

from __future__ import annotations

from pathlib import Path

from setwise.files import write_text
from setwise.report import document, headline

ROOT = Path(__file__).parent.parent.parent


def main() -> None:
    """Update docs/results.md, the pictures of tables in docs/figures/, and README.md."""
    document.write(ROOT / "docs" / "results.md", ROOT / "results")
    readme = ROOT / "README.md"
    write_text(readme, headline.update(readme, ROOT / "results"))


if __name__ == "__main__":
    main()
