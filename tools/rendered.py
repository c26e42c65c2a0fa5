"""Write what was recorded of rendered scenes into docs/pictures.md.

    python -m tools.rendered

The records are those of ``studies/rendered_scenes.py``, in results/rendered-scenes.jsonl.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median

from setwise.experiments import records
from setwise.experiments.experiment import Sheet
from setwise.files import atomic_write_text
from tools.markdown import markdown, with_blocks

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "pictures.md"
NAME = "rendered-scenes"
# The numbers of a record, and the distance within which each counts an object as found.
LIMITS = {
    "heldout_ap": "any",
    "heldout_ap_1": "1",
    "heldout_ap_0.5": "0.5",
    "heldout_ap_0.25": "0.25",
    "heldout": "0.125",
}


def table(results: Path) -> str:
    """A row for each network with each loss, the best at the strictest distance first."""
    if not (results / f"{NAME}.jsonl").is_file():
        return "Nothing recorded yet.\n"
    sheet = Sheet.read(results / f"{NAME}.json")
    cells: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for record in records.read(results / f"{NAME}.jsonl"):
        cells[record["scenario"], record["loss"]].append(record["metrics"])
    rows = []
    for (scenario, loss), runs in cells.items():
        medians = [median(run[name] for run in runs) for name in LIMITS]
        style = sheet.losses[loss]
        told = [sheet.scenarios[scenario], style.symbol, str(len(runs))]
        rows.append((medians[-1], [*told, *(f"{value:.3f}" for value in medians)]))
    rows.sort(key=lambda row: -row[0])
    return (
        "\n".join(
            markdown(["network", "loss", "seeds", *LIMITS.values()], [row for _, row in rows])
        )
        + "\n"
    )


def written(text: str, results: Path = ROOT / "results") -> str:
    """The page with the table of the records."""
    return with_blocks(text, PAGE.name, {"rendered": table(results)})


if __name__ == "__main__":
    atomic_write_text(PAGE, written(PAGE.read_text(encoding="utf-8")))
