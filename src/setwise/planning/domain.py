"""What planning needs to know of a world: its states, its actions, and its states as object sets.

Legend: S states, C numbers of a configuration, T transitions, A actions, N objects, F features,
L bits of a code, U distinct objects; ``*`` any leading dimensions.

A configuration is an integer tensor [C] that describes one legal state exactly. The network never
sees configurations, only sets of objects; configurations are what plans are judged by.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor


class Domain(Protocol):
    """A finite world whose actions can all be undone by another action."""

    @property
    def name(self) -> str:
        """What the problems of this domain are filed under, such as ``puzzle-3x3``."""
        ...

    def configurations(self) -> Tensor:
        """All legal states [S, C]."""
        ...

    def transitions(self) -> Tensor:
        """All legal actions [T, 2], as indices of configurations before and after."""
        ...

    def sample(self, count: int, seed: int) -> Tensor:
        """Distinct configurations [count, C], drawn at random."""
        ...

    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        """Where actions lead, [*, A, C], and which of them are legal, [*, A]."""
        ...

    def is_legal_move(self, before: Tensor, after: Tensor) -> Tensor:
        """Whether one action leads from ``before`` to ``after``: [*, C] twice -> [*]."""
        ...

    def solvable(self, start: Tensor, end: Tensor) -> Tensor:
        """Whether any number of actions leads from ``start`` to ``end``: [*, C] twice -> [*]."""
        ...

    def objects(self, configurations: Tensor) -> Tensor:
        """The states as sets of objects: [*, C] -> [*, N, F]."""
        ...

    def configuration_of(self, objects: Tensor) -> Tensor:
        """The configuration of a set of objects in any order, [N, F] -> [C].

        A ValueError says why if the objects form none.
        """
        ...

    def read(self, outputs: Tensor) -> Tensor:
        """What a decoder's outputs mean: [*, N, F] -> objects of the same shape."""
        ...

    def recovers(self, outputs: Tensor, configurations: Tensor) -> Tensor:
        """Whether outputs [B, N, F] mean the configurations [B, C]: bool [B]."""
        ...

    def nearest(self, objects: Tensor) -> tuple[Tensor, float]:
        """The legal state [C] nearest to a set of objects [N, F], and its distance."""
        ...

    def describe(self, configuration: Tensor) -> str:
        """A state in one line, for a reader."""
        ...

    def action(self, before: Tensor, after: Tensor) -> str:
        """What is done in a legal step, for a reader."""
        ...

    def explain(self, before: Tensor, after: Tensor) -> str:
        """Why no action leads from ``before`` to ``after``, for a reader."""
        ...


@runtime_checkable
class CountedDomain(Protocol):
    """A domain in which few distinct objects occur; its states are encoded much faster."""

    def elements(self) -> Tensor:
        """All distinct objects [U, F]."""
        ...

    def counts(self, configurations: Tensor) -> Tensor:
        """How often each object occurs in each state: [*, C] -> [*, U]."""
        ...


@runtime_checkable
class WordedDomain(Protocol):
    """A domain whose states users can also give in words, as an object of JSON."""

    def from_words(self, given: Mapping[str, Any]) -> Tensor:
        """The configuration [C]; a ValueError says why if there is none."""
        ...


class Coder(Protocol):
    """A model between sets and codes, such as `SetAutoencoder`."""

    def encode(self, sets: Tensor) -> Tensor:
        """[B, N, F] -> bool [B, L], whatever the order of the objects."""
        ...

    def decode(self, codes: Tensor) -> Tensor:
        """bool [B, L] -> outputs [B, N, F]."""
        ...


@runtime_checkable
class CountedCoder(Protocol):
    """A model that encodes counts of known objects as well."""

    def encode_counts(self, counts: Tensor, elements: Tensor) -> Tensor:
        """Counts [B, U] of objects [U, F] -> bool [B, L]."""
        ...
