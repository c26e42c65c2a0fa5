"""The options that put a user's own facts in the place of the countries."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from setwise.cli.errors import CommandError
from setwise.cli.options import positive_whole

if TYPE_CHECKING:
    from setwise.experiments.config import Config
    from setwise.experiments.experiment import Experiment
    from setwise.experiments.recipes.own_facts import OwnFacts


def add_facts(parser: argparse.ArgumentParser) -> None:
    """Which facts, and which rule over them."""
    add = parser.add_argument
    add(
        "--facts",
        type=Path,
        metavar="FILE",
        help="your facts: Prolog, near(a,b)., or triples, a<TAB>near<TAB>b; default: countries",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--relation", help="learn chains of this relation of --facts; default: the only one"
    )
    which.add_argument(
        "--rule", help="the rule to learn: 'uncle(X,Z) :- brother(X,Y), parent(Y,Z)'"
    )
    add(
        "--symmetric",
        nargs="+",
        default=[],
        metavar="RELATION",
        help="relations of --facts that hold in both directions, though stated in one",
    )


def add_clauses(parser: argparse.ArgumentParser) -> None:
    """How to split the clauses of one's own facts."""
    parser.add_argument(
        "--clauses",
        nargs=2,
        type=int,
        metavar=("TRAIN", "TEST"),
        help="clauses of --facts to train on and to hold out; default: those of the preset",
    )
    parser.add_argument(
        "--epochs",
        type=positive_whole,
        help="passes over the clauses of --facts; default: enough for the steps of the preset",
    )


def own_facts(options: argparse.Namespace) -> OwnFacts | None:
    """What the options say, read; None if they speak of no file."""
    if options.facts is None:
        for name in ("relation", "rule", "symmetric"):
            if getattr(options, name):
                raise CommandError(f"--{name}: is about facts of your own; give --facts FILE too")
        return None
    from setwise.experiments.recipes.own_facts import OwnFacts

    try:
        return OwnFacts.read(
            options.facts,
            relation=options.relation,
            rule=options.rule,
            symmetric=options.symmetric,
        )
    except (OSError, ValueError) as error:
        raise CommandError(f"--facts: {error}") from error


def on_facts(options: argparse.Namespace, preset: Experiment) -> tuple[Experiment, OwnFacts | None]:
    """The preset on the facts that were given, which are announced; or as it is without them."""
    own = own_facts(options)
    if own is None:
        for name in ("clauses", "epochs"):
            if getattr(options, name):
                raise CommandError(f"--{name}: is about facts of your own; give --facts FILE too")
        return preset, None
    from setwise.experiments.recipes.own_facts import on_own_facts

    if options.clauses and not (options.clauses[0] >= 2 and options.clauses[1] >= 1):
        given = " ".join(map(str, options.clauses))
        raise CommandError(f"--clauses: at least 2 to train on and 1 to hold out, got {given}")
    if options.table != "table4":
        raise CommandError(f"--facts: is for table4, which is about rules, not {options.table}")
    print(summary(own), file=sys.stderr)
    return on_own_facts(preset, own, options.clauses, options.epochs), own


def require_clauses(own: OwnFacts, configs: Sequence[Config]) -> None:
    """As many as the configs ask for; a warning where some cannot be learned from the rest."""
    from setwise.experiments.recipes import own_facts as recipes

    try:
        recipes.require_clauses(own, configs)
    except ValueError as error:
        raise CommandError(f"--facts: {error}") from error
    for scenario, (some, every, names) in recipes.unlearnable(own, configs).items():
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        print(
            f"{scenario}: {some} of the {every} held-out clauses cannot be learned from the rest, "
            f"which never has {shown} in the same place; more clauses to train on may help",
            file=sys.stderr,
        )


def summary(own: OwnFacts) -> str:
    """What was read: every fact is accounted for."""
    used = own.encoding(n=2).kb.facts
    lines = [f"{own.file}: {own.kb}"]
    unused = [name for name in own.kb.facts if name not in used]
    if unused:
        lines.append(f"  not in the rule, thus left out: {', '.join(unused)}")
    return "\n".join(lines)
