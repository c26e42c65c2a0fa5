"""An action model as PDDL, for any planner, and for a person to read.

Legend: n bindings of a schema, U codes of elements.

Elements are facts ``(is tile-3 x-0 y-2)``, slots are parameters, and what is known of two arguments
is a static relation. A condition that depends on which value is in a slot cannot be said of a
parameter, so that such a schema becomes several actions, with this value as a constant of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from setwise.planning.actions.conditions import Group, Text, grouped
from setwise.planning.actions.exclusions import Exclusions
from setwise.planning.actions.names import different_names, object_names, pddl_name
from setwise.planning.actions.schema import Action, Binding
from setwise.planning.actions.statics import Statics
from setwise.planning.actions.symbols import State

if TYPE_CHECKING:
    from setwise.planning.actions.model import ActionModel

LAST_STEP = "reach-the-goal"
_REACHED = "(goal-reached)"


class Domain:
    """The text of a model, and the names by which a planner's steps are read."""

    def __init__(self, model: ActionModel, name: str = "sets", *, whole: bool = False) -> None:
        """``whole``, nothing is left out because it follows in every state that was seen."""
        self.model, self.name = model, name
        self.objects = object_names(model.symbols)
        self.exclusions, fixed, possible = model.exclusions, model.fixed, model.possible
        if whole:
            self.exclusions = Exclusions((), frozenset(), frozenset())
            fixed, possible = frozenset(), frozenset(range(model.symbols.count))
        groups = [
            group
            for schema in model.schemas
            for group in grouped(schema, self.exclusions, fixed, possible)
        ]
        self.statics = Statics(model.symbols, groups)
        written = [_Written(self, group) for group in groups]
        names = different_names([one.given_name for one in written], taken=[LAST_STEP])
        self.written = dict(zip(names, written, strict=True))

    def text(self) -> str:
        """The domain."""
        return self._text(self._used)

    def problem(self, init: State, goal: State, *, exact: bool = True) -> str:
        """The problem of turning one set into another; not ``exact``: into one that holds it."""
        return self._problem(init, self._goal(init, goal, exact=exact), self._used)

    def with_last_step(self, init: State, goal: State) -> tuple[str, str]:
        """The domain with one action more, `LAST_STEP`, and the problem of being able to do it.

        For Fast Downward, which takes elements that must not be there as conditions of actions, but
        not of goals.
        """
        lines = ["", f"  (:action {LAST_STEP}", "    :parameters ()", "    :precondition (and"]
        lines += [f"      {line}" for line in self._goal(init, goal, exact=True)]
        lines += ["    )", f"    :effect {_REACHED})"]
        return self._text(self._every, lines), self._problem(init, [_REACHED], self._every)

    @cached_property
    def _used(self) -> set[tuple[int, int]]:
        """The values that actions name."""
        return {value for one in self.written.values() for value in one.constants}

    @property
    def _every(self) -> set[tuple[int, int]]:
        sizes = self.model.symbols.sizes
        return {(c, v) for c, size in enumerate(sizes) for v in range(size)}

    def _text(self, constants: set[tuple[int, int]], last: Sequence[str] = ()) -> str:
        statics = self.statics
        is_ = " ".join(f"?{name} - {name}" for name in statics.names)
        lines = [f"(define (domain {pddl_name(self.name)})"]
        lines += ["  (:requirements :strips :typing :equality :negative-preconditions)"]
        lines += ["  (:types", *(f"    {line}" for line in statics.types()), "  )"]
        if constants:
            declared = self._declared(constants)
            lines += ["  (:constants", *(f"    {line}" for line in declared), "  )"]
        lines += ["  (:predicates", f"    (is {is_})"]
        lines += [f"    {line}" for line in statics.predicates()]
        lines += [f"    {_REACHED}"] if last else []
        lines += ["  )"]
        for name, one in self.written.items():
            lines += ["", one.text(name)]
        return "\n".join([*lines, *last, ")", ""])

    def _problem(self, init: State, goal: list[str], constants: set[tuple[int, int]]) -> str:
        lines = [f"(define (problem from-set-to-set)\n  (:domain {pddl_name(self.name)})"]
        objects = self._declared(self._every - constants)
        lines += ["  (:objects", *(f"    {line}" for line in objects), "  )"] if objects else []
        lines += ["  (:init", *(f"    {line}" for line in self.statics.facts(self.objects))]
        lines += [*(f"    {self.fact(code)}" for code in sorted(init)), "  )"]
        lines += ["  (:goal (and", *(f"    {line}" for line in goal), "  ))", ")", ""]
        return "\n".join(lines)

    def _goal(self, init: State, goal: State, *, exact: bool) -> list[str]:
        unwanted = self.unwanted(init, goal) if exact else []
        wanted = [self.fact(code) for code in sorted(goal)]
        return wanted + [f"(not {self.fact(code)})" for code in unwanted]

    def action(self, step: str) -> Action:
        """What a line of a planner's plan means, such as ``change-x tile-3 x-0 x-1 y-2``."""
        name, *arguments = step.split()
        return self.written[name].action(arguments)

    def fact(self, code: int) -> str:
        """An element that is there."""
        values = enumerate(self.model.symbols.digits(code))
        return f"(is {' '.join(self.objects[value] for value in values)})"

    def _declared(self, values: set[tuple[int, int]]) -> list[str]:
        """Objects by their types."""
        return [
            f"{' '.join(self.objects[c, v] for v in chosen)} - {kind}"
            for c, kind, members in self.statics.kinds
            if (chosen := [v for v in members if (c, v) in values])
        ]

    def unwanted(self, init: State, goal: State) -> list[int]:
        """Elements that may be there in the end but must not, unless the goal excludes them."""
        if self.model.keeps_size():
            return []
        symbols, exclude = self.model.symbols, self.exclusions.exclude
        possible = init.union(*(action.added for action in self.model.actions)) - goal
        wanted = [symbols.digits(code) for code in goal]
        return [
            code
            for code in sorted(possible)
            if not any(exclude(symbols.digits(code), one) for one in wanted)
        ]


class _Written:
    """One action of the domain."""

    def __init__(self, domain: Domain, group: Group) -> None:
        self.domain, self.group = domain, group
        schema, fixed = group.schema, group.fixed
        chosen = [
            domain.objects[schema.places[at][0], value]
            for at, value in sorted(fixed.items())
            if len(schema.ranges[at]) > 1
        ]
        self.given_name = "-".join([schema.name, *chosen])
        features = [schema.places[at][0] for at in group.free]
        given = [
            f"{domain.statics.names[c]}{features[:k].count(c) + 1 if features.count(c) > 1 else ''}"
            for k, c in enumerate(features)
        ]  # not different yet: the second x and the only x2
        names = [f"?{name}" for name in different_names(given)]
        self.parameters = dict(zip(group.free, names, strict=True))  # of slots that are not fixed

    @cached_property
    def constants(self) -> set[tuple[int, int]]:
        """Values that the action names."""
        places = self.group.schema.places
        texts = [*self.group.positive, *self.group.negative, *self._effects()]
        named = {(c, v) for text in texts for c, (kind, v) in enumerate(text) if kind == "value"}
        slots = {at for text in texts for kind, at in text if kind == "slot"}
        fixed = self.group.fixed
        return named | {(places[at][0], fixed[at]) for at in slots & fixed.keys()}

    def text(self, name: str) -> str:
        statics = self.domain.statics
        typed = [
            f"{name} - {statics.kind_of(self.group, at)}" for at, name in self.parameters.items()
        ]
        conditions = [*statics.conditions(self.group, self.parameters)]
        conditions += [self._fact(text) for text in self.group.positive]
        conditions += [f"(not {self._fact(text)})" for text in self.group.negative]
        removed, added = self.group.schema.removed, self.group.schema.added
        effects = [f"(not {self._fact(text)})" for text in self._effects(removed)]
        effects += [self._fact(text) for text in self._effects(added)]
        gap = "\n      "
        return (
            f"  (:action {name}\n    :parameters ({' '.join(typed)})\n"
            f"    :precondition (and{gap}{gap.join(conditions)})\n"
            f"    :effect (and{gap}{gap.join(effects)}))"
        )

    def action(self, arguments: list[str]) -> Action:
        schema, numbers = self.group.schema, {}
        for at, name in zip(self.parameters, arguments, strict=True):
            c = schema.places[at][0]
            values = range(schema.sizes[c])
            numbers[at] = next(v for v in values if self.domain.objects[c, v] == name)
        chosen = self.group.fixed | numbers
        binding: Binding = tuple(chosen[at] for at in range(len(schema.places)))
        return schema.action(binding)

    def _effects(self, templates: Iterable[tuple[int, ...]] | None = None) -> list[Text]:
        schema = self.group.schema
        if templates is None:
            templates = schema.removed + schema.added
        return [self.group.text_of(template) for template in templates]

    def _fact(self, text: Text) -> str:
        words = []
        for c, (kind, number) in enumerate(text):
            if kind == "slot" and number in self.parameters:
                words.append(self.parameters[number])
            else:
                value = self.group.fixed[number] if kind == "slot" else number
                words.append(self.domain.objects[c, value])
        return f"(is {' '.join(words)})"
