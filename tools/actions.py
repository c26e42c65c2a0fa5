"""Everything that docs/action-models.md says of action models, measured and written.

python -m tools.actions record            # what is not recorded yet, in results/actions/
python -m tools.actions record ARCHIVE    # and plans from pictures, see tools.seen_blocks
python -m tools.actions                   # writes the tables and the figure of the page
"""

from __future__ import annotations

import sys
from pathlib import Path

from setwise.cli.actions import world_named
from setwise.files import atomic_write_text
from setwise.planning import ActionModel
from setwise.planning.actions import record_walks
from tools import (
    action_bits,
    action_curves,
    action_measured,
    action_records,
    action_truth,
    seen_blocks,
)
from tools.markdown import with_blocks

PAGE = Path(__file__).parent.parent / "docs" / "action-models.md"
FIGURE = PAGE.parent / "figures" / "action-curves.png"
MEASURED = (action_truth, action_curves, action_measured, action_bits)


def record(archive: Path | None) -> None:
    """Measure what is not recorded yet."""
    for part in MEASURED:
        part.record()
    if archive is not None:
        seen_blocks.record(archive)


def update(page: str) -> str:
    """The text of the page with its tables made anew."""
    read = action_records.read
    curves, puzzle = read(action_curves.RECORDS), domain("puzzle-3x3", 500, walk=1)
    hanoi = domain("hanoi-3x3", 600, walk=30)
    largest = hanoi[hanoi.index("  (:action change-peg-disk-2") :].removesuffix(")\n")
    blocks = {
        "puzzle-pddl": f"```\n{puzzle}```\n",
        "hanoi-pddl": f"```\n{largest}```\n",
        "action-truth": action_truth.table(read(action_truth.RECORDS)),
        "action-worlds": action_curves.table(curves),
        "action-curves": action_curves.curve_table(curves),
        "action-measured": action_measured.table(read(action_measured.RECORDS)),
        "action-bits": action_bits.table(read(action_bits.RECORDS)),
        "seen-blocks": seen_blocks.table(read(seen_blocks.RECORDS)),
    }
    return with_blocks(page, PAGE.name, blocks)


def domain(world: str, transitions: int, walk: int) -> str:
    """The PDDL that is learned of a world."""
    recording = record_walks(world_named(world), transitions, 0, walk)
    return ActionModel.learn(recording).domain.text()


def main(arguments: list[str]) -> None:
    """Measure, or write the page."""
    if arguments[:1] == ["record"]:
        record(Path(arguments[1]) if arguments[1:] else None)
        return
    atomic_write_text(PAGE, update(PAGE.read_text()))
    action_curves.draw(action_records.read(action_curves.RECORDS), FIGURE)


if __name__ == "__main__":
    main(sys.argv[1:])
