"""Table 4 over a user's own file of facts: the network and training of a preset, other data.

A scenario of the preset gives the length of a chain of relations; or a rule that the user wrote
takes the place of chains. The experiment is named after the file, as in
``table4-facts-family-quick``, and the scenarios after the head, as in ``grandparent-900-random``:
neither is a name of the paper's.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np

from setwise.data import KnowledgeBase, Rule, RuleEncoding, chain_rule, split_clauses
from setwise.experiments.config import Config
from setwise.experiments.experiment import Experiment
from setwise.experiments.recipes.paper import SH
from setwise.experiments.tasks.rules import FactsData, RulesData, fingerprint, own_encoding

# From which the temperature of the set cross entropy falls, at least; see `recipes.table4`.
ANNEALED = 10.0


@dataclass(frozen=True)
class OwnFacts:
    """A file of facts and what to learn from it: one rule, or chains of one relation."""

    file: Path
    sha256: str
    symmetric: tuple[str, ...]
    kb: KnowledgeBase
    # Either the one or the other.
    rule: Rule | None
    relation: str | None

    @classmethod
    def read(
        cls,
        file: Path,
        *,
        relation: str | None = None,
        rule: str | None = None,
        symmetric: Sequence[str] = (),
    ) -> OwnFacts:
        """Without a rule and a relation, the only relation of the file is followed."""
        kb = KnowledgeBase.read(file, symmetric=symmetric)
        if rule is None and relation is None:
            if len(kb.facts) > 1:
                raise ValueError(
                    f"{file}: holds facts of {', '.join(sorted(kb.facts))}; name one of them with "
                    f"--relation, or write a rule with --rule"
                )
            (relation,) = kb.facts
        parsed = None if rule is None else Rule.parse(rule)
        own = cls(file, fingerprint(file), tuple(sorted(symmetric)), kb, parsed, relation)
        own.encoding(n=2)  # complains about relations that are not there
        return own

    def encoding(self, n: int) -> RuleEncoding:
        """Of the rule, or of the chain of ``n`` steps."""
        return own_encoding(self.kb, self.rule or chain_rule(self.relation or "", n))


def on_own_facts(
    preset: Experiment,
    own: OwnFacts,
    clauses: tuple[int, int] | None = None,
    epochs: int | None = None,
) -> Experiment:
    """A preset of Table 4 on a user's facts.

    ``clauses`` to train on and to hold out take the place of the preset's numbers. Fewer clauses
    are gone through more often, so that no fewer steps are made; ``epochs`` says how often instead.
    """
    models = {scenario: preset.config(scenario, SH, 0) for scenario in preset.scenarios}
    if own.rule is not None:
        models = _nearest(models, len(own.rule.body))
    found: dict[str, tuple[str, FactsData]] = {}
    for scenario, model in models.items():
        theirs = _of_countries(model)
        rule = own.encoding(theirs.n).rule
        train, test = clauses or (theirs.train, theirs.test)
        data = FactsData(
            file=str(own.file),
            sha256=own.sha256,
            rule=str(rule),
            symmetric=own.symmetric,
            train=train,
            test=test,
            scored_as=theirs.scored_as,
            seed=theirs.seed,
        )
        order = "random" if model.shuffle_target else "fixed"
        # With clauses given, scenarios that differed in their numbers alone become one.
        found.setdefault(f"{_plain(rule.predicate)}-{train}-{order}", (scenario, data))

    table, _, rest = preset.name.partition("-")
    name = "-".join(filter(None, [table, "facts", _plain(own.file.stem), rest]))

    def config(scenario: str, loss: str, seed: int) -> Config:
        model_scenario, data = found[scenario]
        model = preset.config(model_scenario, loss, seed)
        # Few clauses in one batch get stuck; with some noise, and the temperature falling, not.
        batch = min(model.schedule.batch, max(2, data.train // 3))
        passes = epochs or _epochs(model, max(1, data.train // batch))
        temperature = max(model.schedule.loss_temperature, ANNEALED)
        schedule = replace(model.schedule, batch=batch, epochs=passes, loss_temperature=temperature)
        return replace(model, experiment=name, scenario=scenario, data=data, schedule=schedule)

    return replace(
        preset,
        name=name,
        title=f"Rules over the facts of {own.file.name}",
        config=config,
        scenarios={scenario: scenario for scenario in found},
        command=f"{preset.command} {_options(own, clauses, epochs)}",
        reference=None,
    )


def require_clauses(own: OwnFacts, configs: Sequence[Config]) -> None:
    """Refuse scenarios that ask for more clauses than their rule has, and say what would do."""
    wanted = {c.scenario: c.data for c in configs if isinstance(c.data, FactsData)}
    counts = {}
    for text in {data.rule for data in wanted.values()}:
        encoding = own_encoding(own.kb, Rule.parse(text))
        counts[text] = encoding.rule.count(encoding.kb)
    short = {s: d for s, d in wanted.items() if d.train + d.test > counts[d.rule]}
    if not short:
        return
    lines = [f"{own.file}: too few clauses to train on and to hold out"]
    for data in dict.fromkeys(short.values()):
        names = ", ".join(scenario for scenario in short if short[scenario] == data)
        asked = f"asks for {data.train} + {data.test}"
        lines.append(f"  {names}: {asked} of the {counts[data.rule]} there are")
    possible = [scenario for scenario in wanted if scenario not in short]
    ways = [f"--scenarios {' '.join(possible)}"] if possible else []
    fewest = min(counts[data.rule] for data in short.values())
    test = max(1, fewest // 10)
    if fewest - test >= 2:  # batch normalisation needs two examples
        named = next(s.replace(f"-{d.train}-", f"-{fewest - test}-") for s, d in short.items())
        ways.append(f"--clauses {fewest - test} {test}, with scenarios such as {named}")
    lines.append(f"possible: {' or '.join(ways)}" if ways else "no split of so few is possible")
    raise ValueError("\n".join(lines))


def _of_countries(config: Config) -> RulesData:
    if not isinstance(config.data, RulesData):
        raise ValueError(f"{config.experiment}: facts are for table4, which is about rules")
    return config.data


def _nearest(models: dict[str, Config], atoms: int) -> dict[str, Config]:
    """The scenarios of the chain that is nearest to a body in its number of atoms."""
    lengths = {scenario: _of_countries(model).n for scenario, model in models.items()}
    n = min(set(lengths.values()), key=lambda n: (abs(n - atoms), n))
    return {scenario: models[scenario] for scenario in models if lengths[scenario] == n}


def _epochs(model: Config, steps: int) -> int:
    """How often to go through clauses, in so many steps each time, to make those of the preset.

    Clauses that do not fill a batch sit an epoch out.
    """
    schedule, theirs = model.schedule, _of_countries(model)
    in_all = schedule.epochs * (theirs.train // schedule.batch)
    return max(schedule.epochs, ceil(in_all / steps))


def unlearnable(own: OwnFacts, configs: Sequence[Config]) -> dict[str, tuple[int, int, list[str]]]:
    """Scenarios with held-out clauses where a constant stands that is new in its place.

    If no clause to train on has it there, a network cannot know what it means or when to answer
    it. Told are how many such clauses there are, of how many, and the constants.
    """
    found = {}
    for config in configs:
        data = config.data
        if config.scenario in found or not isinstance(data, FactsData):
            continue
        encoding = own_encoding(own.kb, Rule.parse(data.rule))
        every = encoding.rule.ground(encoding.kb)
        train, test = split_clauses(every, data.train, data.test, data.seed)
        places = zip(test.T, train.T, strict=True)
        strange = np.stack([~np.isin(held_out, seen) for held_out, seen in places], axis=1)
        if strange.any():
            names = [encoding.kb.constants[place] for place in np.unique(test[strange])]
            found[config.scenario] = (int(strange.any(axis=1).sum()), len(test), names)
    return found


def _options(own: OwnFacts, clauses: tuple[int, int] | None, epochs: int | None) -> str:
    """Of ``setwise reproduce table4``: those that these facts were given by."""
    learned = ["--relation", own.relation or ""] if own.rule is None else ["--rule", str(own.rule)]
    both_ways = ["--symmetric", *own.symmetric] if own.symmetric else []
    split = ["--clauses", *map(str, clauses)] if clauses else []
    passes = ["--epochs", str(epochs)] if epochs else []
    return shlex.join(["--facts", str(own.file), *learned, *both_ways, *split, *passes])


def _plain(name: str) -> str:
    """A name with nothing in it that could be taken for a separator."""
    return re.sub(r"\W+", "_", name)
