"""Codes of all states, and whether a planner can rely on them.

Legend: S states, C numbers of a configuration, N objects, F features, U distinct objects, L bits of
a code, B sets.

A plan over codes can be right only if different states have different codes, if the order of the
objects does not change the code, and if the decoder brings back what was encoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from setwise.data.sets import shuffle_sets
from setwise.planning.graph import distinct_rows
from setwise.worlds import World

_EXAMPLES = 5  # named in a report
_CHUNK = 8192  # states at once; bounds the memory


@runtime_checkable
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


@dataclass(frozen=True)
class LatentHealth:
    """What a latent space does to states. ``str(health)`` is the text, ``as_dict()`` the data."""

    states: int
    codes: int  # distinct ones; as many as states if there are no collisions
    bits: int
    effective_bits: int  # those that are not the same in all codes
    colliding: int  # states that share their code with another
    collisions: list[list[int]]  # examples: states of one code, by index
    permuted: int  # states tried in other orders of their objects
    unstable: int  # of these, states whose code depends on the order
    flipped_bits: int  # the most that changed at once
    recovered: int  # states that the decoder brings back from their code
    lost: list[int]  # examples of others, by index

    @property
    def healthy(self) -> bool:
        """Whether every plan over the codes is a plan over the states."""
        return self.colliding == self.unstable == 0 and self.recovered == self.states

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"healthy": self.healthy}

    def __str__(self) -> str:
        examples = f", such as {self.collisions[0]}" if self.collisions else ""
        lost = f", not {self.lost}" if self.lost else ""
        return "\n".join(
            [
                f"codes      {self.codes} of {self.states} states; "
                f"{self.colliding} states share one{examples}",
                f"bits       {self.effective_bits} of {self.bits} vary",
                f"stability  {self.unstable} of {self.permuted} states change their code with the "
                f"order of their objects, by up to {self.flipped_bits} bits",
                f"decoding   {self.recovered} of {self.states} states come back{lost}",
            ]
        )


def encode_states(
    model: Coder, world: World, configurations: Tensor, chunk: int = _CHUNK
) -> Tensor:
    """The codes, bool [S, L] on the CPU, of configurations [S, C].

    If few distinct objects exist in the world, and the model can count them, each object passes
    the element-wise layers of the encoder once instead of once a state.
    """
    device = device_of(model)
    codes = []
    elements = world.elements() if isinstance(model, CountedCoder) else None
    if isinstance(model, CountedCoder) and elements is not None:
        elements = elements.to(device)
        for part in configurations.split(chunk):
            codes.append(model.encode_counts(world.counts(part).to(device), elements).cpu())
    else:
        for part in configurations.split(chunk):
            codes.append(model.encode(world.objects(part).to(device)).cpu())
    return torch.cat(codes)


def decode_codes(model: Coder, codes: Tensor, chunk: int = _CHUNK) -> Iterator[Tensor]:
    """The decoder's outputs [.., N, F] on the CPU for codes [S, L], chunk by chunk."""
    device = device_of(model)
    with torch.no_grad():
        for part in codes.split(chunk):
            yield model.decode(part.to(device)).cpu()


def latent_health(
    model: Coder,
    world: World,
    configurations: Tensor | None = None,
    *,
    codes: Tensor | None = None,
    permuted: int = 10_000,
    permutations: int = 2,
    seed: int = 0,
    chunk: int = _CHUNK,
) -> LatentHealth:
    """Examine the codes of ``configurations`` [S, C], by default of all states.

    ``codes`` are those of `encode_states`, if they are at hand. Of the states, ``permuted`` drawn
    by the seed are encoded again in so many random orders of their objects.
    """
    configurations = world.states() if configurations is None else configurations
    if codes is None:
        codes = encode_states(model, world, configurations, chunk)
    first, node_of = distinct_rows(codes.numpy())
    shared = np.bincount(node_of)[node_of] > 1
    generator = torch.Generator().manual_seed(seed)
    some = torch.randperm(len(codes), generator=generator)[:permuted]
    flips = torch.zeros(len(some), dtype=torch.int64)
    for _ in range(permutations):
        flips = flips.maximum(
            _flips(model, world, configurations[some], codes[some], generator, chunk)
        )
    parts = zip(decode_codes(model, codes, chunk), configurations.split(chunk), strict=True)
    recovered = torch.cat([world.recovers(outputs, part) for outputs, part in parts])
    return LatentHealth(
        states=len(codes),
        codes=len(first),
        bits=codes.shape[1],
        effective_bits=int((codes.any(0) & ~codes.all(0)).sum()),
        colliding=int(shared.sum()),
        collisions=_groups(node_of, np.flatnonzero(shared)),
        permuted=len(some),
        unstable=int((flips > 0).sum()),
        flipped_bits=int(flips.max()) if len(flips) else 0,
        recovered=int(recovered.sum()),
        lost=(~recovered).nonzero()[:_EXAMPLES, 0].tolist(),
    )


def _flips(
    model: Coder,
    world: World,
    configurations: Tensor,
    codes: Tensor,
    generator: torch.Generator,
    chunk: int,
) -> Tensor:
    """How many bits differ in the code of each state when its objects come in a random order."""
    device = device_of(model)
    found = []
    for part, expected in zip(configurations.split(chunk), codes.split(chunk), strict=True):
        objects = shuffle_sets(world.objects(part), generator)
        found.append((model.encode(objects.to(device)).cpu() != expected).sum(-1))
    return torch.cat(found) if found else torch.zeros(0, dtype=torch.int64)


def _groups(node_of: np.ndarray[Any, Any], shared: np.ndarray[Any, Any]) -> list[list[int]]:
    """A few of the groups of states that share a code, a few states of each."""
    nodes = np.unique(node_of[shared])[:_EXAMPLES]
    return [shared[node_of[shared] == node][:_EXAMPLES].tolist() for node in nodes]


def device_of(model: Coder) -> torch.device:
    """Where a network wants its input."""
    if isinstance(model, nn.Module):
        for parameter in model.parameters():
            return parameter.device
    return torch.device("cpu")
