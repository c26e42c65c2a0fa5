"""Action models learned from transitions of sets, for planning in worlds that nobody listed.

Four ideas, a file each: what elements are called (`symbols`), what a step changes (`differences`),
when it can be done (`preconditions`), and how a planner is told (`pddl`). What things seen are
called is learned first (`seen`, by `looks` and `places`), as what is measured is (`measured`).
"""

from setwise.planning.actions.bits import BitActionModel
from setwise.planning.actions.files import (
    read_problem,
    read_recording,
    write_problem,
    write_recording,
)
from setwise.planning.actions.fitting import fit_symbols
from setwise.planning.actions.measured import MeasuredSymbols
from setwise.planning.actions.model import ActionModel
from setwise.planning.actions.pictured import PicturedSteps
from setwise.planning.actions.plan import ActionPlan, replay
from setwise.planning.actions.recording import Recording, from_elements, from_tensors, together
from setwise.planning.actions.seen import SeenSymbols, Sights, agreement
from setwise.planning.actions.symbols import Symbols, UnknownSymbolError
from setwise.planning.actions.walks import record_walks

__all__ = [
    "ActionModel",
    "ActionPlan",
    "BitActionModel",
    "MeasuredSymbols",
    "PicturedSteps",
    "Recording",
    "SeenSymbols",
    "Sights",
    "Symbols",
    "UnknownSymbolError",
    "agreement",
    "fit_symbols",
    "from_elements",
    "from_tensors",
    "read_problem",
    "read_recording",
    "record_walks",
    "replay",
    "together",
    "write_problem",
    "write_recording",
]
