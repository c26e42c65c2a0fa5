"""Which of the networks that were kept on disk to ask about a head."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from setwise.data import Rule
from setwise.data.terms import read_term
from setwise.experiments import checkpoint, store
from setwise.experiments.clauses import encoding_of, fingerprint
from setwise.experiments.config import Config, FactsData, RulesData, config_from
from setwise.experiments.recipes import RECIPES


@dataclass(frozen=True)
class Kept:
    """A network file of ``setwise reproduce table4 --keep``."""

    path: Path
    config: Config
    # Which share of the held-out clauses it answered correctly; None where that is not recorded.
    heldout: float | None

    @property
    def predicate(self) -> str:
        """Of the heads that it answers."""
        data = self.config.data
        if isinstance(data, FactsData):
            return Rule.parse(data.rule).predicate
        assert isinstance(data, RulesData)
        return f"neighbor{data.n}"


def kept_networks(runs: Path, results: Path, facts: Path | None = None) -> list[Kept]:
    """Those that learned from countries, or from a file with the content of ``facts``; best first.

    ``results`` are the records, which tell what each is worth.
    """
    content = None if facts is None else fingerprint(facts)
    found = []
    for path, config in networks_among(runs.glob("table4*/*.safetensors")):
        data = config.data
        learned_from = data.sha256 if isinstance(data, FactsData) else None
        if isinstance(data, RulesData | FactsData) and learned_from == content:
            found.append(_known(path, config, results))
    return sorted(found, key=lambda kept: (-(kept.heldout or 0), kept.path))


def kept_network(path: Path, results: Path) -> Kept:
    """What is known of a network file."""
    header = checkpoint.read_facts(path)
    if "config" not in header:
        raise ValueError(f"{path}: holds no network but the state of an unfinished training")
    config = config_from(header["config"])
    if not isinstance(config.data, RulesData | FactsData):
        raise ValueError(f"{path}: a network of {config.table}, which learned no rule")
    return _known(path, config, results)


def networks_among(files: Iterable[Path]) -> Iterator[tuple[Path, Config]]:
    """Those files that hold a network, and its config; one that is damaged is told and left out."""
    for path in sorted(files):
        try:
            header = checkpoint.read_facts(path)
            if "config" in header:
                yield path, config_from(header["config"])
        except ValueError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)


def _known(path: Path, config: Config, results: Path) -> Kept:
    records = store.read(results / f"{config.table}.jsonl")
    heldout = [record["metrics"]["heldout"] for record in records if record["run"] == path.stem]
    return Kept(path, config, heldout[0] if heldout else None)


def asked_predicate(head: str, facts: Path | None = None) -> str:
    """Of a head; over countries, one that no preset of Table 4 answers is an error."""
    predicate = read_term(head).predicate
    if facts is not None:
        return predicate
    lengths = {f"neighbor{n}": n for n in fastest_scenarios()}
    if predicate not in lengths:
        raise ValueError(
            f"{head}: expected a head of {', '.join(lengths)}, got {predicate}; for facts of your "
            f"own name their file with --facts"
        )
    encoding_of(RulesData(n=lengths[predicate])).read_head(head)
    return predicate


def fastest_scenarios() -> dict[int, tuple[str, Config]]:
    """For every n of Table 4 the preset and config that train a network with least effort."""
    found: dict[int, tuple[str, Config]] = {}
    for preset in ("quick", "paper"):
        for config in RECIPES["table4"][preset].configs(seeds=[0], losses=["SH"]):
            if isinstance(config.data, RulesData) and config.shuffle_target:
                found.setdefault(config.data.n, (preset, config))
    return found
