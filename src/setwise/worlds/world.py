"""A world: states that are sets of objects, and actions between them.

Legend: S states, C numbers of a configuration, T transitions, A actions, N objects, F features,
U distinct objects, B sets, P sets that are drawn; ``*`` any leading dimensions.

A configuration is an integer tensor [C] that describes one state exactly. A network never sees
configurations, only sets of objects; configurations are what plans are judged by.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from setwise.data.checks import integers, item, random_bits, require_int, require_shape
from setwise.features import Features
from setwise.registry import Registry
from setwise.worlds.drawing import Pictures, draw_features
from setwise.worlds.rows import RowTable

WORLDS: Registry[type[World]] = Registry("world")

_FEW = 1024  # distinct objects that are worth being counted


class World(ABC):
    """A finite world, every action of which can be undone by another.

    A subclass says what its ``features`` are, and defines `states`, `successors` and `objects`. All
    else follows from these, by looking through all states, and is overridden where a world knows
    better. A subclass with a ``kind`` is found by that name in `WORLDS`, as ``setwise plan`` does.
    """

    kind: ClassVar[str]
    # What the features are called, for those who read what was learned of them.
    feature_names: ClassVar[tuple[str, ...] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" in cls.__dict__:
            WORLDS.add(cls.kind, cls)

    @property
    def name(self) -> str:
        """What the problems of this world are filed under, such as ``puzzle-3x3``.

        By default its kind, and of a world without one the name of its class.
        """
        return getattr(self, "kind", type(self).__name__)

    # ---- What a planner needs: sets in, sets out, transitions. ----

    @property
    @abstractmethod
    def features(self) -> Features:
        """What an object is."""

    @abstractmethod
    def states(self) -> Tensor:
        """All states, as configurations [S, C]."""

    @abstractmethod
    def successors(self, configurations: Tensor) -> tuple[Tensor, Tensor]:
        """Where actions lead, [*, C] -> [*, A, C], and which of them are legal, bool [*, A]."""

    @abstractmethod
    def objects(self, configurations: Tensor) -> Tensor:
        """States as sets of objects: [*, C] -> [*, N, F]."""

    def transitions(self) -> Tensor:
        """All legal actions [T, 2], as indices of states before and after."""
        after, legal = self.successors(self._states)
        before, reached = legal.nonzero()[:, 0], self.index(after[legal])
        size = len(self._states)
        stuck = ~torch.isin(reached * size + before, before * size + reached)
        if stuck.any():
            one, other = self._states[before[stuck][0]], self._states[reached[stuck][0]]
            raise ValueError(
                f"{self.name}: an action leads from {one.tolist()} to {other.tolist()}, and none "
                f"back; planning needs worlds in which every action can be undone"
            )
        return torch.stack([before, reached], dim=-1)

    def index(self, configurations: Tensor) -> Tensor:
        """Where configurations [*, C] are among all states: [*]; an error where one is none."""
        configurations = integers("configurations", configurations)
        require_shape("configurations", configurations, "*", self._states.shape[1])
        found = self._state_table.find(configurations)
        if len(wrong := (found < 0).nonzero()):
            at = wrong[0].tolist()
            raise ValueError(
                f"{item('configurations', at)}: no state of {self.name}, "
                f"got {configurations[tuple(at)].tolist()}"
            )
        return found

    def sample(self, count: int, seed: int) -> Tensor:
        """Distinct states, configurations [count, C], drawn at random.

        With the same seed a larger ``count`` continues the same list.
        """
        require_int("count", count, 0, len(self._states))
        order = random_bits("sample", seed).random_raw(len(self._states)).argsort(kind="stable")
        return self._states[torch.from_numpy(order[:count])]

    def start(self) -> Tensor | None:
        """The state [C] that problems lead to, such as a solved puzzle; None if any will do."""
        return None

    def read(self, outputs: Tensor) -> Tensor:
        """What a decoder's outputs mean: [*, N, F] -> objects of the same shape.

        Not a number where an output is not all finite numbers: a choice would be an accident.
        """
        finite = outputs.isfinite().all(-1, keepdim=True)
        return self.features.discretise(outputs).where(finite, torch.nan)

    def elements(self) -> Tensor | None:
        """All distinct objects [U, F] if they are few: states are then encoded much faster."""
        elements, _ = self._inventory
        return elements if len(elements) <= _FEW else None

    def counts(self, configurations: Tensor) -> Tensor:
        """How often each of the `elements` occurs in each state: [*, C] -> [*, U]."""
        elements, members = self._inventory
        which = members[self.index(configurations)]
        counts = torch.zeros(*which.shape[:-1], len(elements))
        return counts.scatter_add_(-1, which, torch.ones_like(which, dtype=counts.dtype))

    # ---- What a judge needs: what is a state, what is a step, and words for both. ----

    def configuration_of(self, objects: Tensor) -> Tensor:
        """The configuration of a set of objects in any order, [N, F] -> [C].

        A ValueError says why if the objects form none.
        """
        elements, members = self._inventory
        require_shape("objects", objects, members.shape[1], elements.shape[1])
        unknown = (self._element_table.find(objects) < 0).nonzero()
        if len(unknown):
            at = int(unknown[0])
            raise ValueError(f"object {at} occurs in no state: {objects[at].tolist()}")
        found = int(self._find(objects))
        if found < 0:
            raise ValueError("these objects occur, but not together in one state")
        return self._states[found]

    def recovers(self, outputs: Tensor, configurations: Tensor) -> Tensor:
        """Whether outputs [B, N, F] mean the configurations [B, C]: bool [B]."""
        return self._find(self.read(outputs)) == self.index(configurations)

    def is_legal_move(self, before: Tensor, after: Tensor) -> Tensor:
        """Whether one action leads from ``before`` to ``after``: [*, C] twice -> [*]."""
        return self._actions_between(before, after).any(-1)

    def solvable(self, start: Tensor, end: Tensor) -> Tensor:
        """Whether any number of actions leads from ``start`` to ``end``: [*, C] twice -> [*]."""
        return self._component[self.index(start)] == self._component[self.index(end)]

    def nearest(self, objects: Tensor) -> tuple[Tensor, float]:
        """The state [C] nearest to a set of objects [N, F], and its distance.

        That is the least sum of absolute differences between objects, over all ways to pair them;
        what is no number counts as 0.
        """
        from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

        elements, members = self._inventory
        costs = torch.cdist(objects.nan_to_num(0, 0, 0).double(), elements.double(), p=1)  # [N, U]
        # Each object paired with the nearest costs no more than any pairing: states are tried in
        # this order, until no other can be better.
        bounds, order = costs[:, members].amin(-1).sum(0).sort()
        best, found = torch.inf, 0
        for bound, state in zip(bounds.tolist(), order.tolist(), strict=True):
            if bound >= best:
                break
            paired = costs[:, members[state]].numpy()
            distance = float(paired[linear_sum_assignment(paired)].sum())
            if distance < best:
                best, found = distance, state
        return self._states[found], best

    def from_words(self, given: Mapping[str, Any]) -> Tensor:
        """The configuration [C] of a state that a user gives as an object of JSON."""
        raise ValueError(
            f"expected a list of numbers, since states of {self.name} have no form in words, "
            f"got {dict(given)}"
        )

    def describe(self, configuration: Tensor) -> str:
        """A state in one line, for a reader."""
        return " ".join(map(str, configuration.tolist()))

    def action(self, before: Tensor, after: Tensor) -> str:
        """What is done in a legal step, for a reader."""
        return f"action {int(self._actions_between(before, after).nonzero()[0])}"

    def explain(self, before: Tensor, after: Tensor) -> str:
        """Why no action leads from ``before`` to ``after``, for a reader."""
        return f"no action leads from {self.describe(before)} to {self.describe(after)}"

    # ---- Drawing. ----

    # Whether pictures are photographs, which have more colours than a GIF can show.
    photographic: ClassVar[bool] = False

    def draw(self, objects: Tensor) -> Pictures:
        """Decoded sets [P, N, F], legal or not, such as those along a plan: [P, height, width, 3].

        Nothing but the features, unless a world knows better.
        """
        return draw_features(objects)

    def draw_move(self, before: Tensor, after: Tensor) -> Pictures | None:
        """Pictures [k, height, width, 3] from one set [N, F] to another; None to let it fade."""
        return None

    # ---- What the defaults look things up in. ----

    @cached_property
    def _states(self) -> Tensor:
        states = integers("states", self.states())
        require_shape("states", states, "states", "numbers")
        return states

    @cached_property
    def _state_table(self) -> RowTable:
        table = RowTable(self._states)
        if len(table) < len(self._states):
            raise ValueError(
                f"{self.name}: {len(self._states) - len(table)} of its {len(self._states)} states "
                f"are there twice"
            )
        return table

    @cached_property
    def _inventory(self) -> tuple[Tensor, Tensor]:
        """The distinct objects [U, F], and which of them [S, N] each state has, in order."""
        objects = self.objects(self._states)
        require_shape("objects", objects, len(self._states), "objects", self.features.width)
        elements, which = objects.flatten(0, 1).unique(dim=0, return_inverse=True)
        return elements, which.reshape(objects.shape[:2]).sort(-1).values

    @cached_property
    def _element_table(self) -> RowTable:
        return RowTable(self._inventory[0])

    @cached_property
    def _member_table(self) -> RowTable:
        table = RowTable(self._inventory[1])
        if len(table) < len(self._states):
            raise ValueError(
                f"{self.name}: its {len(self._states)} states have only {len(table)} different "
                f"sets of objects, so that some cannot be told apart"
            )
        return table

    @cached_property
    def _component(self) -> Tensor:
        """A number for each state [S], the same for those between which actions lead."""
        from scipy.sparse import coo_array  # type: ignore[import-untyped]
        from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

        before, after = self.transitions().numpy().T
        size = len(self._states)
        graph = coo_array((np.ones(len(before)), (before, after)), shape=(size, size))
        return torch.from_numpy(connected_components(graph, directed=False)[1])

    def _find(self, objects: Tensor) -> Tensor:
        """The indices [*] of the states that sets [*, N, F] are; -1 for those that are none."""
        return self._member_table.find(self._element_table.find(objects).sort(-1).values)

    def _actions_between(self, before: Tensor, after: Tensor) -> Tensor:
        """Which actions lead from ``before`` to ``after``: [*, C] twice -> bool [*, A]."""
        reached, legal = self.successors(before)
        return (reached == after.unsqueeze(-2)).all(-1) & legal
