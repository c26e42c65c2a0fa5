"""Pictures of states beside what the networks of an experiment made of them."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from setwise.experiments.experiment import Sheet
from setwise.experiments.reconstructions import Reconstructions
from setwise.report.page.pieces import (
    Markup,
    gallery,
    joined,
    paragraph,
    subheading,
    trio,
)
from setwise.report.page.provenance import commands_for, provenance, source_of
from setwise.report.reconstructions import Comparison, compare, encoded
from setwise.report.records import require
from setwise.report.tables import Recorded

FILE = "{name}-reconstructions.npz"
DRAWING = "python -m tools.blocksworld reconstructions runs/{name}"
_BROKEN = (EOFError, LookupError, TypeError, ValueError, zipfile.BadZipFile, zlib.error)
_KINDS = ("input", "output", "difference")


def reconstructions(results: Path, recorded: Recorded) -> Markup:
    """What the file of an experiment shows; nothing where it has none."""
    sheet = recorded.sheet
    path = results / FILE.format(name=sheet.name)
    if not path.exists():
        return Markup("")
    # Networks are kept where they are trained, and what is recorded is not trained again.
    *_, training = commands_for(sheet, again=bool(recorded.records)) or [""]
    commands = [f"{training} --keep best", DRAWING.format(name=sheet.name)]
    try:
        shown = _shown(sheet, Reconstructions.read(path), commands)
    except _BROKEN as error:
        raise ValueError(f"{path}: not a file of reconstructions: {error!r}") from error
    return joined([subheading("What the networks see"), shown])


def _shown(sheet: Sheet, found: Reconstructions, commands: Sequence[str]) -> Markup:
    require(vars(found), {"environment": dict, "finished": str})
    scenario = _last(sheet, (config.scenario for config in found.configs))
    said = (
        f"Held-out states of scenario {sheet.label(scenario)}, as the networks of "
        f"each loss put them out again. The difference is black where there is none."
    )
    compared = compare(sheet, found, scenario)
    what = f"{len(found.states)} states, put out again by {len(compared)} networks"
    source = source_of({"finished": found.finished}, found.environment, what)
    return joined(
        [
            paragraph(said),
            gallery([_compared(sheet, one, found.states) for one in compared]),
            provenance(commands, [source], "the comparison", level=4),
        ]
    )


def _last(sheet: Sheet, scenarios: Iterable[str]) -> str:
    """The last of the sheet's that there is: by custom, the hardest."""
    order = list(sheet.scenarios)
    return max(scenarios, key=lambda name: order.index(name) if name in order else -1)


def _compared(sheet: Sheet, one: Comparison, states: Sequence[int]) -> Markup:
    """Three pictures a row: what went in, what came out, and how they differ."""
    style = sheet.losses[one.loss]
    rows = [
        [
            (encoded(photograph), f"{kind} of state {state}, {style.symbol}")
            for kind, photograph in zip(_KINDS, row, strict=True)
        ]
        for state, row in zip(states, one.rows, strict=True)
    ]
    return trio(f"{style.symbol}: {style.label}, rmse {one.rmse:.3f} on these", _KINDS, rows)
