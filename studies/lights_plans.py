"""Plan in Lights Out with the networks of ``studies/likelihood.py``, twenty problems each.

    setwise train studies/likelihood.py --scenarios lights --seeds 0-4 --keep all
    python studies/lights_plans.py runs/likelihood results/studies/lights.jsonl

Each line that is written says how many of the problems a network has a valid plan for.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from setwise import environment
from setwise.files import atomic_write_text
from setwise.planning.instances import problems_for
from setwise.planning.latent import device_of
from setwise.planning.latplan import LatentPlanner
from setwise.planning.learned import open_space

PROBLEMS, STEPS, SEED = 20, 7, 0


def plans_of(network: Path) -> dict[str, Any]:
    """What one network comes to: states that come back, and problems with a valid plan."""
    space = open_space(network)
    with LatentPlanner(space.model, space.world) as planner:
        health = planner.health()
        solved = sum(
            planner.solve(problem.init, problem.goal).valid
            for problem in problems_for(space.world, STEPS, PROBLEMS, SEED)
        )
    return {
        "run": network.stem,
        "loss": space.config.loss,
        "seed": space.config.seed,
        "states": health.states,
        "restored": health.recovered,
        "problems": PROBLEMS,
        "solved": solved,
        "environment": environment.describe(device_of(space.model)),
    }


def main(runs: Path, output: Path) -> None:
    found = [plans_of(network) for network in sorted(runs.glob("*.safetensors"))]
    found.sort(key=lambda one: (one["loss"], one["seed"]))
    for one in found:
        print(one)
    output.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_text(output, "".join(json.dumps(one) + "\n" for one in found))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
