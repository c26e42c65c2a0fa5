"""``setwise reproduce``: train the runs behind a table of the paper, then print it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from setwise.cli import plans, training
from setwise.cli.errors import CommandError
from setwise.cli.facts import add_clauses, add_facts, on_facts, require_clauses
from setwise.experiments.recipes import EXPERIMENTS

if TYPE_CHECKING:
    from setwise.experiments.config import Config
    from setwise.experiments.experiment import Experiment

TABLES = ("table1", "table2", "table3", "table4")
PAPER = "paper"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    parser = commands.add_parser(
        "reproduce",
        help="train the networks of a table of the paper",
        description="Trains the runs of a table that are not recorded yet, many networks at once, "
        "and prints the table. After Ctrl-C or SIGTERM the same command resumes.",
    )
    parser.add_argument("table", choices=[*TABLES, plans.TABLE], help="a table of the paper")
    every = sorted({preset for table in TABLES for preset in presets(table)})
    parser.add_argument("--preset", default=PAPER, help=f"{', '.join(every)}; default: {PAPER}")
    training.add_options(parser)
    add_facts(parser)
    add_clauses(parser)
    parser.set_defaults(run=_run, extra="experiments")


def presets(table: str) -> dict[str, Experiment]:
    """The experiments of a table, by the name of the preset.

    >>> list(presets("table2"))
    ['paper', 'quick', 'counted']
    """
    return {
        name.removeprefix(f"{table}-") if name != table else PAPER: experiment
        for name, experiment in EXPERIMENTS.items()
        if name == table or name.startswith(f"{table}-")
    }


def _run(options: argparse.Namespace) -> int:
    options.results = training.records_of(options, quick=options.preset == "quick")
    if options.table == plans.TABLE:
        return plans.run(options)
    known = presets(options.table)
    if options.preset not in known:
        raise CommandError(
            f"--preset: {options.table} has no {options.preset}; it has {', '.join(known)}"
        )
    experiment, own = on_facts(options, known[options.preset])

    def check(configs: Sequence[Config]) -> None:
        if own:
            require_clauses(own, configs)

    return training.train_experiment(experiment, options, check)
