"""Which of the networks that were kept on disk to ask about a head."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from setwise.data.terms import read_term
from setwise.experiments import records
from setwise.experiments.config import Config
from setwise.experiments.recipes import EXPERIMENTS
from setwise.experiments.recipes.paper import SH
from setwise.experiments.saved_networks import networks_among, read_config
from setwise.experiments.tasks.rules import ClausesData, RulesData, fingerprint


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
        assert isinstance(data, ClausesData)
        return data.predicate


def kept_rule_learners(runs: Path, results: Path, facts: Path | None = None) -> list[Kept]:
    """Those that learned from countries, or from a file with the content of ``facts``; best first.

    ``results`` are the records, which tell what each is worth; of equals, one of the set cross
    entropy comes first.
    """
    content = None if facts is None else fingerprint(facts)
    found = []
    for path, config in networks_among(runs.glob("*/*.safetensors")):
        data = config.data
        if isinstance(data, ClausesData) and data.source == content:
            found.append(_known(path, config, results))

    def preference(kept: Kept) -> tuple[float, bool, Path]:
        return -(kept.heldout or 0), kept.config.loss != SH, kept.path

    return sorted(found, key=preference)


def kept_rule_learner(path: Path, results: Path) -> Kept:
    """What is known of a network file."""
    config = read_config(path)
    if not isinstance(config.data, ClausesData):
        raise ValueError(f"{path}: a network of {config.experiment}, which learned no rule")
    return _known(path, config, results)


def _known(path: Path, config: Config, results: Path) -> Kept:
    # Beside the networks of a quick try are its records.
    folders = (results, path.parent.parent / "records")
    read = (records.read(folder / f"{config.experiment}.jsonl") for folder in folders)
    for record in chain.from_iterable(read):
        metrics = record.get("metrics")
        if record.get("run") == path.stem and isinstance(metrics, dict):
            heldout = metrics.get("heldout")
            return Kept(path, config, heldout if isinstance(heldout, int | float) else None)
    return Kept(path, config, None)


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
    RulesData(n=lengths[predicate]).encoding().read_head(head)
    return predicate


def fastest_scenarios() -> dict[int, tuple[str, Config, RulesData]]:
    """For every n of Table 4 the preset, config and data that take the least effort to train."""
    found: dict[int, tuple[str, Config, RulesData]] = {}
    for preset, name in (("quick", "table4-quick"), ("paper", "table4")):
        for config in EXPERIMENTS[name].configs(seeds=[0], losses=["set_cross_entropy"]):
            if isinstance(config.data, RulesData) and config.shuffle_target:
                found.setdefault(config.data.n, (preset, config, config.data))
    return found
