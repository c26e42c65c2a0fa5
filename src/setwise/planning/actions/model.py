"""Action models: learned from transitions of sets, planned with, written as PDDL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from setwise.features import Features
from setwise.files import atomic_write_text
from setwise.planning.actions.differences import Pattern
from setwise.planning.actions.exclusions import Exclusions, exclusions_of
from setwise.planning.actions.grouping import grouped_transitions
from setwise.planning.actions.pddl import Domain
from setwise.planning.actions.plan import ActionPlan, Given, make_plan
from setwise.planning.actions.preconditions import learn_schema
from setwise.planning.actions.recording import Recording, from_tensors
from setwise.planning.actions.schema import Action, Schema
from setwise.planning.actions.symbols import State, Symbols, Value
from setwise.planning.actions.wording import SchemaNames, in_words


@dataclass(frozen=True)
class ActionModel:
    """What can be done to a set, and what becomes of it.

    >>> import torch
    >>> before = torch.tensor([[[1, 0], [2, 0]], [[2, 1], [1, 0]], [[1, 0], [2, 1]]])  # disk, peg
    >>> after = torch.tensor([[[1, 1], [2, 0]], [[1, 2], [2, 1]], [[1, 0], [2, 0]]])
    >>> model = ActionModel.fit(before, after, names=["disk", "peg"])
    >>> print(model)
    1 schema from 3 transitions of 3
    change-peg: 3 seen, removes (disk, peg1), adds (disk, peg2)
    """

    symbols: Symbols
    schemas: tuple[Schema, ...]
    exclusions: Exclusions
    fixed: State  # elements of every state that was seen
    seen: State  # elements of any
    transitions: int
    unchanged: int  # transitions in which nothing was done
    dropped: tuple[tuple[str, int], ...]  # what had too little support, and how often it was seen

    @classmethod
    def fit(
        cls,
        before: Tensor,
        after: Tensor,
        features: Features | None = None,
        *,
        before_valid: Tensor | None = None,
        after_valid: Tensor | None = None,
        names: Sequence[str] | None = None,
        actions: Sequence[str] | None = None,
        lift: bool = True,
        absent: bool = True,
        support: int = 1,
    ) -> ActionModel:
        """Learn from sets ``before`` [T, N, F] and ``after`` [T, M, F]; see `from_tensors`."""
        recording = from_tensors(
            before,
            after,
            features,
            before_valid=before_valid,
            after_valid=after_valid,
            names=names,
            actions=actions,
        )
        return cls.learn(recording, lift=lift, absent=absent, support=support)

    @classmethod
    def learn(
        cls, recording: Recording, *, lift: bool = True, absent: bool = True, support: int = 1
    ) -> ActionModel:
        """Learn from a recording.

        With ``lift``, transitions that differ by a renaming of values are one action; without, each
        difference is one of its own. With ``absent``, what was never there before an action forbids
        it, as a box does a step to its place; where only what is there decides, as in a puzzle,
        fewer transitions do without. What was seen fewer than ``support`` times is noise.
        """
        if isinstance(support, bool) or not isinstance(support, int) or support < 1:
            raise ValueError(f"support: expected a whole number, at least 1, got {support!r}")
        symbols = recording.symbols
        digits = {code: symbols.digits(code) for s in _all_states(recording) for code in s}
        states = {s: tuple(digits[code] for code in s) for s in set(_all_states(recording))}
        fixed = frozenset.intersection(*states)
        exclusions = exclusions_of(states.values(), len(symbols.names))
        groups, unchanged = grouped_transitions(recording, digits, states, lift=lift)
        schemas, dropped = [], []
        names = SchemaNames(symbols, exclusions)
        for (slots, pattern, _), (observations, said) in groups:
            schema = learn_schema(
                names.next(pattern, said),
                symbols.sizes,
                slots,
                pattern,
                observations,
                frozenset(digits[code] for code in fixed),
                support,
                absent=absent,
            )
            kept = 0 if schema is None else schema.seen
            if schema is not None:
                schemas.append(schema)
            if kept < len(observations):
                text = in_words(symbols, slots, pattern)
                dropped.append((text, len(observations) - kept))
        return cls(
            symbols,
            tuple(schemas),
            exclusions,
            fixed,
            frozenset(digits),
            len(recording),
            unchanged,
            tuple(dropped),
        )

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """Every schema with every choice of its arguments."""
        return tuple(s.action(binding) for s in self.schemas for binding in s.bindings())

    @cached_property
    def possible(self) -> State:
        """Elements that were seen, or that an action brings."""
        return self.seen.union(*(action.added for action in self.actions))

    def successors(self, state: State) -> dict[State, Action]:
        """Where the model leads from a set, and by what."""
        return {one.result(state): one for one in self.actions if one.applies(state)}

    def keeps_size(self) -> bool:
        """Whether no action changes how many elements there are.

        What comes must not have been there; only an action that it forbids makes sure of that.
        """
        return all(
            len(schema.removed) == len(schema.added)
            and schema.may is not None
            and schema.may.isdisjoint(schema.added)
            for schema in self.schemas
        )

    @cached_property
    def domain(self) -> Domain:
        """The model as PDDL, without conditions that follow from others in every state seen."""
        return Domain(self)

    @cached_property
    def whole_domain(self) -> Domain:
        """The same with all conditions, for sets that are like none that was seen."""
        return Domain(self, whole=True)

    def plan(
        self,
        init: Given,
        goal: Given,
        *,
        exact: bool = True,
        searcher: str = "lmcut",
        seconds: float = 300.0,
        memory_mb: int = 6000,
        executable: str | Path | None = None,
    ) -> ActionPlan:
        """Look for a plan from one set [N, F] to another, elements in any order, by Fast Downward.

        ``searcher`` is a heuristic for A*, whose plans are shortest if it is admissible, as
        ``lmcut`` and ``blind`` are; or ``ff`` or ``lama``, which are greedy, for large problems.
        Not ``exact``, the goal is any set that holds the elements of ``goal``.
        """
        return make_plan(
            self,
            init,
            goal,
            exact=exact,
            searcher=searcher,
            seconds=seconds,
            memory_mb=memory_mb,
            executable=executable,
        )

    def carried(self, values: Mapping[str, Sequence[Value]]) -> ActionModel:
        """The model with more values of some features than were seen, such as of a larger board.

        New values are taken to behave as most known ones do. An error says where that cannot be
        told from what is known; where it can, it is still a guess, unlike all else in the model.
        """
        from setwise.planning.actions.carried import carry

        return carry(self, values)

    def write_pddl(self, folder: str | Path) -> Path:
        """Write the domain to ``domain.pddl`` in a folder; returns where it is."""
        path = Path(folder) / "domain.pddl"
        atomic_write_text(path, self.domain.text())
        return path

    def __str__(self) -> str:
        count = len(self.schemas)
        used = sum(schema.seen for schema in self.schemas)
        lines = [
            f"{count} schema{'s' * (count != 1)} from {used} transitions of {self.transitions}"
        ]
        lines += [
            f"{schema.name}: {schema.seen} seen, "
            f"{in_words(self.symbols, schema.slots, Pattern((schema.removed, schema.added)))}"
            for schema in self.schemas
        ]
        if self.unchanged:
            lines.append(f"nothing done: {self.unchanged} seen")
        lines += [
            f"dropped, for want of support: {seen} seen, {what}" for what, seen in self.dropped
        ]
        return "\n".join(lines)


def _all_states(recording: Recording) -> tuple[State, ...]:
    return recording.before + recording.after
