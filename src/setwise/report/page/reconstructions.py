"""Blocksworld states beside what the networks of Table 3 made of them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from setwise.experiments.reconstructions import Reconstructions
from setwise.report.page.pieces import (
    Html,
    command,
    gallery,
    joined,
    paragraph,
    subheading,
    trio,
)
from setwise.report.page.provenance import commands_for, provenance, source_of
from setwise.report.paper import LOSS_NAMES, TABLES
from setwise.report.pictures import Comparison, compare, encoded
from setwise.report.records import require

FILE = "table3-reconstructions.npz"
DRAWING = "python docs/figures/blocksworld.py reconstructions runs/table3"
_BROKEN = (EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)
_KINDS = ("input", "output", "difference")


def reconstructions(results: Path) -> Html:
    """What is in the file of a folder of results, or how to have it."""
    path = results / FILE
    # Networks are kept where they are trained, and what is recorded is not trained again.
    *_, training = commands_for("table3", again=(results / "table3.jsonl").exists())
    commands = [f"{training} --keep best", DRAWING]
    parts = [subheading("What the networks see")]
    if path.exists():
        try:
            parts.append(_shown(Reconstructions.read(path), commands))
        except _BROKEN as error:
            raise ValueError(f"{path}: not a file of reconstructions: {error!r}") from error
    else:
        parts.append(paragraph("No reconstructions are recorded yet."))
        parts.append(command("\n".join(commands)))
    return joined(parts)


def _shown(found: Reconstructions, commands: Sequence[str]) -> Html:
    require(vars(found), {"environment": dict, "finished": str})
    scenario = _hardest(config.scenario for config in found.configs)
    said = (
        f"Held-out states of scenario {TABLES['table3'].label(scenario)}, as the networks of "
        f"each loss put them out again. The difference is black where there is none."
    )
    compared = compare(found, scenario)
    what = f"{len(found.states)} states, put out again by {len(compared)} networks"
    source = source_of({"finished": found.finished}, found.environment, what)
    return joined(
        [
            paragraph(said),
            gallery([_compared(one, found.states) for one in compared]),
            provenance(commands, [source], "the comparison", level=4),
        ]
    )


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
