"""Action models over bits: for worlds whose elements do not name what changes.

Legend: T transitions, N elements, F features, L bits, A actions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from setwise.features import Features
from setwise.metrics import multiset_equality
from setwise.models.deep_sets import check_size
from setwise.models.prototypes import check_sets
from setwise.planning.actions.bit_network import BitNetwork
from setwise.planning.actions.bit_training import explain, train_bits
from setwise.planning.actions.contexts import in_contexts
from setwise.planning.actions.differences import Pattern
from setwise.planning.actions.exclusions import exclusions_of
from setwise.planning.actions.model import ActionModel
from setwise.planning.actions.plan import ActionPlan
from setwise.planning.actions.preconditions import learn_schema
from setwise.planning.actions.symbols import Element, State, Symbols, UnknownSymbolError


@dataclass(frozen=True)
class BitSymbols(Symbols):
    """Bits that are on as elements ``(number,)``; sets are read and written by a network."""

    network: BitNetwork | None = field(default=None, compare=False, repr=False)
    tolerance: float = 0.0

    def state(self, elements: Iterable[Element] | Tensor) -> State:
        """The bits of a set [N, F], or those given by their numbers."""
        if not isinstance(elements, Tensor):
            return super().state(elements)
        network = self._reader
        if elements.dim() != 2:
            raise ValueError(f"expected one set [N, F], got shape {tuple(elements.shape)}")
        check_sets(elements.unsqueeze(0), network.features, "set")
        elements = elements.to(network.stay_logits)
        code = network.encode(elements)
        if not _brought_back(network, elements, code, self.tolerance):
            raise UnknownSymbolError("the network does not bring it back: it is like none seen")
        return _state(code)

    def tensor(self, state: State) -> Tensor:
        """The set [N, F] behind bits."""
        code = torch.zeros(self.count, dtype=torch.bool)
        code[list(state)] = True
        network = self._reader
        return network.features.discretise(network.decode(code))

    @property
    def _reader(self) -> BitNetwork:
        assert self.network is not None
        return self.network


@dataclass(frozen=True)
class BitActionModel:
    """What can be done to a set, in bits and actions that a network has made up.

    Beside `ActionModel`, whose propositions are the elements themselves. A network reads a set as
    bits and writes it again; an action sets some bits and clears others, whatever the state, as in
    AMA3+ (Asai and Muise, 2020; Asai et al., 2022). Conditions are learned safely, as there: bits
    that were always on, or always off, before the action; where that does not say all, it is
    several actions, each in a context of its own. They are safe as far as the bits are right: a
    plan is one in the bits, and the sets along the way are what the network makes of them.
    """

    network: BitNetwork
    model: ActionModel  # over the bits
    recovered: float  # the share of sets that the network brings back
    explained: float  # the share of transitions that an action turns into each other, bit by bit

    @classmethod
    def fit(
        cls,
        before: Tensor,
        after: Tensor,
        features: Features,
        *,
        bits: int = 100,
        actions: int = 400,
        steps: int = 1500,
        support: int = 1,
        tolerance: float = 0.0,
        seed: int = 0,
    ) -> BitActionModel:
        """Learn from sets ``before`` and ``after`` [T, N, F], of one size, elements in any order.

        The network has so many ``bits`` and ``actions``, of which it may leave some unused; what
        is learned of them are as many as change different bits, or in different contexts.
        ``steps`` are those of the training, on 100 transitions each. What was seen fewer than
        ``support`` times is dropped. Where features are real, decoded ones may be ``tolerance``
        away.
        """
        check_sets(before, features, "before")
        check_sets(after, features, "after")
        if before.shape != after.shape:
            raise ValueError(
                f"before and after: expected sets of one size, got {tuple(before.shape)} "
                f"and {tuple(after.shape)}"
            )
        check_size("steps", steps)
        check_size("support", support)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = BitNetwork(before.shape[1], features, bits, actions)
            before, after = (sets.to(network.stay_logits) for sets in (before, after))
            train_bits(network, before, after, steps=steps, seed=seed)
        codes = network.encode(before), network.encode(after)
        kept = [
            _brought_back(network, *pair, tolerance)
            for pair in zip((before, after), codes, strict=True)
        ]
        symbols = BitSymbols(
            ("bit",), (tuple(range(bits)),), None, network=network, tolerance=tolerance
        )
        model, explained = _learned(network, symbols, *codes, support)
        return cls(network, model, float(torch.cat(kept).double().mean()), explained)

    def plan(
        self,
        init: Tensor,
        goal: Tensor,
        *,
        searcher: str = "lmcut",
        seconds: float = 300.0,
        memory_mb: int = 6000,
        executable: str | Path | None = None,
    ) -> ActionPlan:
        """Look for a plan from one set [N, F] to another; see `ActionModel.plan`.

        The ``states`` of the result are the sets that the network writes along the way. A set that
        it does not bring back has the outcome ``unknown init`` or ``unknown goal``.
        """
        return self.model.plan(
            init,
            goal,
            searcher=searcher,
            seconds=seconds,
            memory_mb=memory_mb,
            executable=executable,
        )

    def write_pddl(self, folder: str | Path) -> Path:
        """Write the domain to ``domain.pddl`` in a folder; returns where it is."""
        return self.model.write_pddl(folder)

    def __str__(self) -> str:
        return (
            f"{len(self.model.schemas)} actions on {len(self.model.seen)} bits; "
            f"{self.recovered:.2%} of the sets come back, {self.explained:.2%} of the transitions "
            f"are explained"
        )


def _learned(
    network: BitNetwork, symbols: BitSymbols, before: Tensor, after: Tensor, support: int
) -> tuple[ActionModel, float]:
    """The model over bits, and the share of transitions that an action of the network explains."""
    _, explained = explain(network, before.float(), after.float())
    states = [tuple(map(_state, code)) for code in (before, after)]
    digits = {state: tuple((bit,) for bit in sorted(state)) for side in states for state in side}
    fixed = frozenset.intersection(*digits)
    schemas, dropped = [], []
    for number, (change, seen) in enumerate(_alike(before, after)):
        schema = learn_schema(
            f"action-{number}",
            symbols.sizes,
            (0,),
            Pattern((_bits(change < 0), _bits(change > 0))),
            [((), digits[states[0][at]]) for at in seen.tolist()],
            frozenset((bit,) for bit in fixed),
            support,
            absent=True,
        )
        if schema is not None:
            schemas.append(schema)
        else:
            dropped.append((f"action-{number}", len(seen)))
    model = ActionModel(
        symbols,
        tuple(schemas),
        exclusions_of(digits.values(), 1),
        fixed,
        frozenset().union(*digits),
        len(before),
        sum(one == other for one, other in zip(*states, strict=True)),
        tuple(dropped),
    )
    return model, float(explained.double().mean())


def _alike(before: Tensor, after: Tensor) -> list[tuple[Tensor, Tensor]]:
    """What steps between bits [T, L] change, [L] in -1, 0 and 1, and which of them do, [n].

    They are told apart by what they changed, and not by the network's action: several of these may
    change the same, and one that is rare may be left to none.
    """
    changes, kind = (after.int() - before.int()).unique(dim=0, return_inverse=True)
    found = []
    for number, change in enumerate(changes):
        if bool(change.any()):
            steps = (kind == number).nonzero()[:, 0]
            found += [(change, part) for part in in_contexts(steps, before)]
    return found


def _state(code: Tensor) -> State:
    return frozenset(code.nonzero()[:, 0].tolist())


def _bits(which: Tensor) -> tuple[tuple[int], ...]:
    return tuple((bit,) for bit in which.nonzero()[:, 0].tolist())


def _brought_back(network: BitNetwork, sets: Tensor, codes: Tensor, tolerance: float) -> Tensor:
    """Whether sets [*, N, F] are what the decoder makes of their bits: bool [*]."""
    outputs = network.decode(codes)
    found = multiset_equality(
        outputs, sets, network.features, tolerance=tolerance, reduction="none"
    )
    return found.bool()
