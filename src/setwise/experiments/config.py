"""What a run is: everything that decides its result, in one typed value.

Recipes (`setwise.experiments.recipes`) are functions that return a `Config`; they derive from each
other with `dataclasses.replace`. A config is written into the record of its run in full, and its
`identity` names the run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

Loss = Literal["H", "SH", "A1H", "H1H"]
LOSSES: tuple[Loss, ...] = ("H", "SH", "A1H", "H1H")


Scoring = Literal["categorical", "bernoulli"]
# Marks fields that were added after runs had been recorded: at their default, a config has the name
# that it had without them.
LATER = {"later": True}


@dataclass(frozen=True)
class PuzzleData:
    """States of a sliding puzzle as sets of objects; the same ones for every run of a table."""

    kind: Literal["puzzle"] = "puzzle"
    width: int = 3
    height: int = 3
    states: int = 5000
    # The first `train` states are trained on, the others are held out.
    train: int = 4500
    # Whether objects are missing from half of the states, with dummies in their place: one for
    # each empty cell, or the first few of a list, as many as are missing.
    variable: bool = False
    dummies: Literal["cells", "counted"] = "cells"
    # How a softmax output is scored: the paper takes its features for independent Bernoullis.
    scored_as: Scoring = "bernoulli"
    seed: int = 0

    def __post_init__(self) -> None:
        known = ("cells", "counted")
        _require("dummies", self.dummies in known, self, f"one of {', '.join(known)}")


@dataclass(frozen=True)
class RulesData:
    """Ground clauses of neighbor-n over the neighbour relation of countries."""

    kind: Literal["rules"] = "rules"
    n: int = 2
    train: int = 2250
    test: int = 250
    scored_as: Scoring = "bernoulli"
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class FactsData:
    """Ground clauses of any rule over a user's own file of facts; see `recipes.own_facts`.

    A class of its own: what it needs would change the identities of all runs over countries.
    """

    kind: Literal["facts"] = "facts"
    # Where the file lies and what it holds; a file that has changed since is refused.
    file: str
    sha256: str
    # As Prolog writes it: grandparent(X,Z) :- parent(X,Y), parent(Y,Z).
    rule: str
    # Relations whose facts hold in both directions, though they may be stated in one.
    symmetric: tuple[str, ...] = ()
    train: int
    test: int
    scored_as: Scoring = "bernoulli"
    seed: int = 0


@dataclass(frozen=True)
class BlocksData:
    """Pictures of Blocksworld states, each a set of blocks; see ``setwise data blocksworld``.

    A block is the features of its patch and the classes of its box: 1024 and 60 + 40 + 60 + 40.
    """

    kind: Literal["blocks"] = "blocks"
    # What the pictures show, and how they are drawn.
    blocks: int = 5
    stacks: int = 3
    states: int = 2500
    seed: int = 0
    renderer: Literal["mitsuba", "blender"] = "mitsuba"
    width: int = 300
    height: int = 200
    samples: int = 32
    # Of the archive that holds them; another is refused. Empty while it is still to be made.
    sha256: str = ""
    # The first `train` states are trained on, by the patch autoencoder too.
    train: int = 2250
    # Boxes are discretised by so many pixels.
    cell: int = 5
    # The patch autoencoder and how it is trained, with Adam; a patch has 64 features a channel.
    patch_channels: int = 16
    patch_epochs: int = 150
    patch_batch: int = 125
    patch_rate: float = 1e-3
    patch_seed: int = 0
    scored_as: Scoring = "bernoulli"


@dataclass(frozen=True)
class Autoencoder:
    """The set autoencoder of the paper's appendix; see `setwise.models.SetAutoencoder`."""

    kind: Literal["autoencoder"] = "autoencoder"
    element_widths: tuple[int, ...] = (1000, 1000)
    widths: tuple[int, ...] = (1000, 1000)
    # Binary Gumbel-softmax variables.
    latent: int = 100
    decoder_width: int = 1000
    dropout: float = 0.5
    # Whether latent variables are sampled in training, or only softened.
    noise: bool = True
    # Begin with typical elements in place of nothing; see `setwise.models.start_at_prototypes`.
    start_at_prototypes: bool = field(default=False, metadata=LATER)


@dataclass(frozen=True)
class RuleLearner:
    """The decoder alone, from the head of a clause to its body; see `setwise.models.SetDecoder`."""

    kind: Literal["rule learner"] = "rule learner"
    width: int = 400
    hidden_layers: int = 2
    dropout: float = 0.5


@dataclass(frozen=True)
class EquivariantLearner:
    """Treats all constants alike; see `setwise.models.EquivariantRuleLearner`."""

    kind: Literal["equivariant learner"] = "equivariant learner"
    width: int = 64
    hidden_layers: int = 2


Data = PuzzleData | RulesData | FactsData | BlocksData
Network = Autoencoder | RuleLearner | EquivariantLearner


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train, with Adam."""

    epochs: int
    batch: int = 500
    learning_rate: float = 1e-3
    # The last share of training, over which the learning rate falls linearly to zero.
    cooldown: float = 0.0
    # Of the latent variables: exponentially from start to end over a first share, then constant.
    temperature_start: float = 5.0
    temperature_end: float = 0.7
    temperature_until: float = 0.7
    # The temperature of the set cross entropy at the start, exponentially to 1 over a first share.
    # Above 1 all outputs learn from all targets at first, so that none is left over in the end.
    softness: float = field(default=1.0, metadata=LATER)
    softness_until: float = field(default=0.6, metadata=LATER)
    # The share of elements that get the look of others of their kind each time they are seen, and
    # how many of those they get it from; see `setwise.experiments.recombine`.
    recombined: float = field(default=0.0, metadata=LATER)
    donors: int = field(default=32, metadata=LATER)
    # How often in a run the success is measured; it does not influence the training.
    evaluations: int = 40

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "evaluations"):
            _require(name, getattr(self, name) >= 1, self, "at least 1")
        _require("batch", self.batch >= 2, self, "at least 2, for batch normalisation")
        _require(
            "donors", self.donors >= 2, self, "at least 2, for one is mostly the element itself"
        )
        _require("learning_rate", self.learning_rate >= 0, self, "not negative")
        for name in ("temperature_start", "temperature_end", "softness"):
            _require(name, getattr(self, name) > 0, self, "positive")
        for name in ("cooldown", "recombined"):
            _require(name, 0 <= getattr(self, name) <= 1, self, "a share from 0 to 1")
        for name in ("temperature_until", "softness_until"):
            _require(name, 0 < getattr(self, name) <= 1, self, "a share of (0, 1]")


@dataclass(frozen=True)
class Config:
    """One run. Those that agree in all but `MEMBERWISE` can be trained together."""

    table: str
    scenario: str
    loss: Loss
    seed: int
    # Whether the elements come in a new random order each time they are seen.
    shuffle_input: bool
    shuffle_target: bool
    data: Data
    network: Network
    schedule: Schedule
    # PyTorch's setting for products of float32 matrices.
    precision: Literal["highest", "high", "medium"] = "high"

    def __post_init__(self) -> None:
        _require("loss", self.loss in LOSSES, self, f"one of {', '.join(LOSSES)}")
        _require("seed", self.seed >= 0, self, "not negative")
        precisions = ("highest", "high", "medium")
        _require("precision", self.precision in precisions, self, f"one of {', '.join(precisions)}")

    @property
    def identity(self) -> str:
        """A short name that any change of the config changes.

        Noise and dropout are drawn from it, so it must stay what it was in older records.
        """
        return hashlib.sha256(json.dumps(_named(self), sort_keys=True).encode()).hexdigest()[:16]

    def shared(self) -> Config:
        """The part that runs trained together have in common."""
        return replace(
            self, scenario="", loss="H", seed=0, shuffle_input=False, shuffle_target=False
        )


def _named(part: Any) -> dict[str, Any]:
    """As ``asdict``, without fields that came later and say nothing new."""
    named = {}
    for one in fields(part):
        value = getattr(part, one.name)
        if not (one.metadata == LATER and value == one.default):
            named[one.name] = _named(value) if is_dataclass(value) else value
    return named


MEMBERWISE = ("scenario", "loss", "seed", "shuffle_input", "shuffle_target")


def _require(name: str, holds: bool, owner: Any, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name}: must be {expected}, got {getattr(owner, name)!r}")


def config_from(saved: dict[str, Any]) -> Config:
    """The config behind ``dataclasses.asdict`` of it, as records hold it."""
    parts = {
        "data": _filled(
            "data",
            _kind("data", saved, PuzzleData, RulesData, FactsData, BlocksData),
            saved["data"],
        ),
        "network": _filled(
            "network",
            _kind("network", saved, Autoencoder, RuleLearner, EquivariantLearner),
            saved["network"],
        ),
        "schedule": _filled("schedule", Schedule, saved["schedule"]),
    }
    config: Config = _filled("config", Config, saved | parts)
    return config


def _kind(name: str, saved: dict[str, Any], *kinds: Any) -> Any:
    known = {kind.kind: kind for kind in kinds}
    given = saved[name].get("kind")
    if given not in known:
        raise ValueError(f"{name}: unknown kind {given!r}; known: {', '.join(known)}")
    return known[given]


def _filled(name: str, part: Any, saved: dict[str, Any]) -> Any:
    unknown = sorted(set(saved) - {field.name for field in fields(part)})
    if unknown:
        raise ValueError(
            f"{name}: unknown fields {', '.join(unknown)}; was it written by another version?"
        )
    # JSON has no tuples.
    return part(**{k: tuple(v) if isinstance(v, list) else v for k, v in saved.items()})
