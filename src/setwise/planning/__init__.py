"""Classical planning over the codes of sets: from object sets to plans that have been checked.

The `planning` extra brings Fast Downward; everything but the search works without it.
"""

from setwise.planning.actions import ActionModel, ActionPlan, BitActionModel, Recording
from setwise.planning.downward import Outcome, Search, find_executable, search
from setwise.planning.exact import shortest_length
from setwise.planning.failures import Failure, failure_of
from setwise.planning.graph import LatentGraph, latent_graph
from setwise.planning.instances import (
    Problem,
    problems_for,
    random_problems,
    read_problems,
    write_problems,
)
from setwise.planning.latent import Coder, LatentHealth, encode_states, latent_health
from setwise.planning.latplan import LatentPlanner, PlanningResult, replay
from setwise.planning.sas import (
    Encoding,
    identifying_bits,
    variables_of,
    write_operators,
    write_task,
)
from setwise.planning.validate import Fault, FaultKind, Report, validate

__all__ = [
    "ActionModel",
    "ActionPlan",
    "BitActionModel",
    "Coder",
    "Encoding",
    "Failure",
    "Fault",
    "FaultKind",
    "LatentGraph",
    "LatentHealth",
    "LatentPlanner",
    "Outcome",
    "PlanningResult",
    "Problem",
    "Recording",
    "Report",
    "Search",
    "encode_states",
    "failure_of",
    "find_executable",
    "identifying_bits",
    "latent_graph",
    "latent_health",
    "problems_for",
    "random_problems",
    "read_problems",
    "replay",
    "search",
    "shortest_length",
    "validate",
    "variables_of",
    "write_operators",
    "write_problems",
    "write_task",
]
