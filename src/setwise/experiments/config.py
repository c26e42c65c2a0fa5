"""What a run is: everything that decides its result, in one typed value.

Experiments (`setwise.experiments.recipes`) have a function that returns the `Config` of a run;
configs derive from each other with ``dataclasses.replace``. A config is written into the record of
its run in full, and its `identity` names the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from setwise.experiments.networks.network import NETWORKS, NetworkConfig
from setwise.experiments.tasks.task import TASKS, DataConfig
from setwise.experiments.typed import require_types
from setwise.files import require_name
from setwise.losses.table import LOSSES

Precision = Literal["highest", "high", "medium"]

# In what runs that are trained together may differ, and what stands there for all of them.
MEMBERWISE: dict[str, Any] = {
    "scenario": "",
    "loss": next(iter(LOSSES)),
    "seed": 0,
    "shuffle_input": False,
    "shuffle_target": False,
}


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train, with Adam."""

    epochs: int
    batch: int = 500
    learning_rate: float = 1e-3
    # The last share of training, over which the learning rate falls linearly to zero.
    cooldown: float = 0.0
    # The first share of training, over which it rises linearly from zero, step by step.
    warmup: float = 0.0
    # Of the latent variables: exponentially from start to end over a first share, then constant.
    latent_temperature_start: float = 5.0
    latent_temperature_end: float = 0.7
    latent_temperature_until: float = 0.7
    # Of losses that have one: at the start, exponentially to 1 over a first share. Above 1 all
    # outputs learn from all targets at first, so that none is left over in the end.
    loss_temperature: float = 1.0
    loss_temperature_until: float = 0.6
    # Of losses that have an exclusivity: the first share of training, over which it rises from 0,
    # where outputs may share a target, to 1; see `setwise.rising_exclusivity`. 0 is not at all.
    exclusivity_until: float = 0.0
    # Of Gaussian features: how many times as wide their scales are at the start, exponentially to 1
    # over a first share. Wide ones let all else lead, and places follow; see docs/pictures.md.
    blur: float = 1.0
    blur_until: float = 0.6
    # The share of elements that get the look of others of their kind each time they are seen, and
    # how many of those they get it from; see `setwise.experiments.recombine`.
    recombined: float = 0.0
    donors: int = 32
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
        for name in ("latent_temperature_start", "latent_temperature_end", "loss_temperature"):
            _require(name, getattr(self, name) > 0, self, "positive")
        _require("blur", self.blur > 0, self, "positive")
        for name in ("cooldown", "warmup", "recombined", "exclusivity_until"):
            _require(name, 0 <= getattr(self, name) <= 1, self, "a share from 0 to 1")
        for name in ("latent_temperature_until", "loss_temperature_until", "blur_until"):
            _require(name, 0 < getattr(self, name) <= 1, self, "a share of (0, 1]")


@dataclass(frozen=True)
class Config:
    """One run. Those that agree in all but `MEMBERWISE` can be trained together."""

    experiment: str
    scenario: str
    loss: str  # its name in `setwise.losses.table`
    seed: int
    # Whether the elements come in a new random order each time they are seen.
    shuffle_input: bool
    shuffle_target: bool
    data: DataConfig
    network: NetworkConfig
    schedule: Schedule
    # PyTorch's setting for products of float32 matrices.
    precision: Precision = "high"

    def __post_init__(self) -> None:
        require_name("experiment", self.experiment)  # files are called by it
        _ = LOSSES[self.loss]  # an unknown one is told, with those that are known
        _require("scenario", self.scenario.isprintable(), self, "printable")
        _require("seed", 0 <= self.seed < 2**63, self, "from 0 to 2**63 - 1")
        for name, kinds in (("data", TASKS), ("network", NETWORKS)):
            part = getattr(self, name)
            if kinds[part.kind] is not type(part):
                raise ValueError(
                    f"{name}: {type(part).__name__} has the kind {part.kind!r} of another class, "
                    f"and would be recorded as that; give it a kind of its own"
                )
        precisions = get_args(Precision)
        _require("precision", self.precision in precisions, self, f"one of {', '.join(precisions)}")

    @property
    def identity(self) -> str:
        """A short name that any change of the config changes. Nothing that is drawn depends on it.

        >>> from setwise.experiments.recipes import EXPERIMENTS
        >>> len(EXPERIMENTS["table1"].config("4", "set_cross_entropy", 0).identity)
        16
        """
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def __reduce__(self) -> tuple[Any, ...]:
        """Travels to other processes as what a record holds of it.

        There its parts are found by their kinds, those of a user's own as well.
        """
        return config_from, (self.as_dict(),)

    def shared(self) -> Config:
        """The part that runs trained together have in common."""
        return replace(self, **MEMBERWISE)

    def as_dict(self) -> dict[str, Any]:
        """What a record holds of it; `config_from` is the way back."""
        return asdict(self) | {
            "data": {"kind": self.data.kind, **_told(self.data)},
            "network": {"kind": self.network.kind, **_told(self.network)},
        }


def _told(part: DataConfig | NetworkConfig) -> dict[str, Any]:
    """All fields, of those added `later` the ones that are not at their default.

    So the runs that were recorded before keep their names.
    """
    silent = {
        field.name
        for field in fields(part)
        if field.metadata.get("later") and getattr(part, field.name) == field.default
    }
    return {name: value for name, value in asdict(part).items() if name not in silent}


def config_from(saved: dict[str, Any]) -> Config:
    """The config behind `Config.as_dict`, as records of the current schema hold it."""
    parts = {
        "data": _of_kind("data", TASKS, saved),
        "network": _of_kind("network", NETWORKS, saved),
        "schedule": _filled("schedule", Schedule, _part("schedule", saved)),
    }
    _registered("loss", LOSSES, saved.get("loss"))
    config: Config = _filled("config", Config, saved | parts)
    return config


def _of_kind(name: str, kinds: Any, saved: dict[str, Any]) -> Any:
    rest = dict(_part(name, saved))
    kind = rest.pop("kind", None)
    return _filled(name, _registered(f"{name} of kind", kinds, kind), rest)


def _registered(what: str, entries: Mapping[str, Any], name: Any) -> Any:
    """The entry of a name that was saved: of a user's own, where its file may have been run."""
    if not isinstance(name, str):
        raise ValueError(f"{what}: expected a name, got {name!r:.60}")
    if name not in entries:
        raise ValueError(
            f"written with {what} {name!r:.60}, which is not registered; pass the file that "
            f"defines it (setwise plan --world FILE.py), or import it first"
        )
    return entries[name]


def _part(name: str, saved: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(part := saved.get(name), dict):
        raise ValueError(f"{name}: expected an object with its fields, got {part!r:.60}")
    return part


def _filled(name: str, part: Any, saved: dict[str, Any]) -> Any:
    unknown = sorted(set(saved) - {field.name for field in fields(part)})
    if unknown:
        raise ValueError(
            f"{name}: unknown fields {', '.join(unknown)}; was it written by another version?"
        )
    values = {name: _with_tuples(value) for name, value in saved.items()}
    require_types(name, part, values)
    return part(**values)


def _with_tuples(value: Any) -> Any:
    """JSON has no tuples."""
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def _require(name: str, holds: bool, owner: Any, expected: str) -> None:
    if not holds:
        raise ValueError(f"{name}: must be {expected}, got {getattr(owner, name)!r}")
