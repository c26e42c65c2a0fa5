"""Blocksworld states beside what the networks of Table 3 made of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from setwise.experiments.reconstructions import Reconstructions
from setwise.report.page.html import Html, joined
from setwise.report.page.pieces import command, gallery, paragraph, subheading, trio
from setwise.report.paper import LOSS_NAMES, TABLES
from setwise.report.pictures import Comparison, compare, encoded

FILE = "table3-reconstructions.npz"
COMMANDS = (
    "setwise reproduce table3 --preset paper --keep best",
    "python docs/figures/blocksworld.py reconstructions runs/table3",
)
_KINDS = ("input", "output", "difference")


def reconstructions(results: Path) -> Html:
    """What is in the file of a folder of results, or how to have it."""
    path = results / FILE
    parts = [subheading("What the networks see")]
    if path.exists():
        try:
            found = Reconstructions.read(path)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{path}: not a file of reconstructions: {error}") from error
        scenario = _hardest(config.scenario for config in found.configs)
        said = (
            f"Held-out states of scenario {TABLES['table3'].label(scenario)}, as the networks of "
            f"each loss put them out again. The difference is black where there is none."
        )
        parts.append(paragraph(said))
        shown = [_compared(one, found.states) for one in compare(found, scenario)]
        parts.append(gallery(shown))
    else:
        parts.append(paragraph("No reconstructions are recorded yet."))
    parts.append(command("\n".join(COMMANDS)))
    return joined(parts)


def _hardest(scenarios: Iterable[str]) -> str:
    """The last of the paper's that there is: inputs and targets in random order."""
    order = list(TABLES["table3"].scenarios)
    return max(scenarios, key=lambda name: order.index(name) if name in order else -1)


def _compared(one: Comparison, states: Sequence[int]) -> Html:
    """Three pictures a row: what went in, what came out, and how they differ."""
    rows = [
        [
            (encoded(photograph), f"{kind} of state {state}, {one.loss}")
            for kind, photograph in zip(_KINDS, row, strict=True)
        ]
        for state, row in zip(states, one.rows, strict=True)
    ]
    return trio(f"{one.loss}: {LOSS_NAMES[one.loss]}, rmse {one.rmse:.3f} on these", _KINDS, rows)
