"""``setwise rules``: ask a trained network for the body of a rule, count ground clauses."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setwise.cli.errors import CommandError
from setwise.cli.facts import add_facts, own_facts, summary
from setwise.cli.options import require_file
from setwise.experiments.tasks import RulesData
from setwise.losses.table import LOSSES

if TYPE_CHECKING:
    from setwise.experiments.ask import Answer
    from setwise.experiments.kept import Kept


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser's."""
    rules = commands.add_parser(
        "rules",
        help="query learned rules over countries or your own facts",
        description="Queries networks that have learned rules, and counts their training clauses.",
    )
    actions = rules.add_subparsers(dest="action", required=True)

    ask = actions.add_parser(
        "ask",
        help="predict the body of a rule from its head",
        description="Gives the head of a rule to a trained network and prints the body that it "
        "predicts, its confidence, and whether it is right. The exit code is 0 if it is, 1 "
        "if it is not, and 2 if the network could not be asked.",
    )
    add = ask.add_argument
    add("head", help="for instance 'neighbor2(austria,germany,belgium)'")
    add("--network", type=Path, metavar="FILE", help="default: the best one kept in --runs")
    add("--facts", type=Path, metavar="FILE", help="the file that it was trained on, if any")
    add("--runs", type=Path, default=Path("runs"), help="folder of networks; default: runs")
    add("--results", type=Path, default=Path("results"), help="folder of records; default: results")
    add("--json", action="store_true", help="the answer as JSON")
    ask.set_defaults(run=_ask, extra="experiments")

    count = actions.add_parser(
        "count",
        help="count the ground clauses to learn from",
        description="Counts the facts and the ground clauses of rules over them.",
    )
    add_facts(count)
    count.add_argument("--json", action="store_true", help="the counts as JSON")
    count.set_defaults(run=_count, extra="experiments")


def _ask(options: argparse.Namespace) -> int:
    from setwise.experiments.ask import RuleNetwork
    from setwise.experiments.kept import kept_rule_learner
    from setwise.experiments.saved_networks import first_that_opens

    def opened(kept: Kept) -> tuple[Kept, RuleNetwork]:
        return kept, RuleNetwork.load(kept.path, options.facts)

    named = options.network
    if named:
        require_file("--network", named)
    try:
        there = [kept_rule_learner(named, options.results)] if named else _answering(options)
        found = first_that_opens(there, opened)
        assert found is not None
        kept, network = found
        answer = network.ask(options.head)
    except (OSError, ValueError) as error:
        raise CommandError(str(error)) from error
    if options.json:
        print(json.dumps(_as_json(answer, kept), indent=1))
    else:
        print("\n".join(_lines(answer, kept)))
    return 0 if answer.correct else 1


def _answering(options: argparse.Namespace) -> list[Kept]:
    """The networks to ask where none is named, the best first; at least one."""
    from setwise.experiments.kept import asked_predicate, kept_rule_learners

    predicate = asked_predicate(options.head, options.facts)
    kept = kept_rule_learners(options.runs, options.results, options.facts)
    if answering := [network for network in kept if network.predicate == predicate]:
        return answering
    others = sorted({network.predicate for network in kept})
    there = f" (only for {', '.join(others)})" if others else ""
    raise CommandError(
        f"no network for {predicate} is kept in {options.runs}{there}; this trains one: "
        f"{shlex.join(_training(options, predicate))}"
    )


def _training(options: argparse.Namespace, predicate: str) -> list[str]:
    """The command that trains the network that is missing."""
    from setwise.experiments import records
    from setwise.experiments.kept import fastest_scenarios

    command = ["setwise", "reproduce", "table4", "--losses", "SH", "--seeds", "0", "--keep", "best"]
    if options.facts:
        command += ["--facts", str(options.facts)]
    steps = re.search(r"\d+$", predicate)  # of a chain: neighbor2
    scenarios = fastest_scenarios()
    if not steps or int(steps[0]) not in scenarios:
        return [*command, "--preset", "quick", "--rule", f"{predicate}(...) :- ..."]
    preset, config, data = scenarios[int(steps[0])]
    command += ["--preset", preset]
    if options.facts:
        return [*command, "--scenarios", f"{predicate}-{data.train}-random"]
    command += ["--scenarios", config.scenario]
    quick = preset == "quick"
    folder = options.runs / "records" if quick else options.results
    recorded = records.read(folder / f"{config.experiment}.jsonl")
    if any((r["loss"], r["scenario"]) == (config.loss, config.scenario) for r in recorded):
        # What is recorded is not trained again, and published records are not added to.
        command += ["--results", str(options.runs / ("again" if quick else "records"))]
    return command


def _lines(answer: Answer, kept: Kept) -> list[str]:
    """For people."""
    body = list(dict.fromkeys(term.text for term in answer.terms))
    lines = [f"{answer.head} :- {', '.join(body)}.", "", "confidence"]
    width = max(map(len, body))
    for term in answer.terms:
        lines.append(
            f"{term.confidence:10.4f}  {term.text:{width}}  {'' if term.fact else 'not '}a fact"
        )
    lines += [f"{answer.confidence:10.4f}  the whole body", "", _verdict(answer)]
    config = kept.config
    rate = "" if kept.heldout is None else f"; {kept.heldout:.2f} of the held-out clauses right"
    lines.append(
        f"asked: {kept.path} ({config.experiment}, {config.scenario}, "
        f"{LOSSES[config.loss].symbol}, "
        f"seed {config.seed}{rate})"
    )
    return lines


def _verdict(answer: Answer) -> str:
    if not answer.bodies:
        why = f": {answer.obstacle}" if answer.obstacle else ""
        return f"no body is correct: the knowledge base has no clause with this head{why}"
    which = {
        "trained on": "the network was trained on this clause",
        "held out": "the clause was held out from training",
        "in neither part": "the clause was neither trained on nor held out",
    }[answer.seen]
    if answer.correct:
        return f"correct; {which}"
    right = ", or ".join(", ".join(body) for body in answer.bodies[:3])
    more = f", or one of {len(answer.bodies) - 3} others" if len(answer.bodies) > 3 else ""
    return f"wrong: the body is {right}{more}; {which}"


def _as_json(answer: Answer, kept: Kept) -> dict[str, Any]:
    config = kept.config
    return {
        "head": answer.head,
        "body": [
            {"term": term.text, "confidence": term.confidence, "fact": term.fact}
            for term in answer.terms
        ],
        "confidence": answer.confidence,
        "correct": answer.correct,
        "clause": answer.seen,
        "bodies": answer.bodies,
        "obstacle": answer.obstacle,
        "network": {
            "file": str(kept.path),
            "experiment": config.experiment,
            "scenario": config.scenario,
            "loss": config.loss,
            "seed": config.seed,
            "heldout": kept.heldout,
        },
    }


def _count(options: argparse.Namespace) -> int:
    from setwise.data.countries import PAPER_CLAUSES

    own = own_facts(options)
    rows: list[dict[str, Any]] = []
    for n, paper in PAPER_CLAUSES.items():
        encoding = own.encoding(n) if own else RulesData(n=n).encoding()
        clauses = encoding.rule.count(encoding.kb)
        # The paper counts over countries alone.
        known = None if own else paper
        rows.append({"rule": str(encoding.rule), "clauses": clauses, "paper": known})
        if own and own.rule:  # one rule, whatever n
            break
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    if own:
        print("\n".join([summary(own), f"{'clauses':>9}"]))
        print("\n".join(f"{row['clauses']:9}  {row['rule']}" for row in rows))
        return 0
    print(f"{'clauses':>9} {'the paper':>9}")
    for row in rows:
        share = f"{row['clauses'] / row['paper'] - 1:+.2%}"
        print(f"{row['clauses']:9} {row['paper']:9} {share:>8}  {row['rule']}")
    return 0
