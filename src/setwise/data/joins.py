"""The clauses of a rule, an atom at a time: each joins its facts to what the ones before bound.

Legend: C clauses so far, V variables bound so far, K constants.

A table [C, V] holds constants by their indices in a knowledge base, a column for each variable.
Clauses are counted without a table of all of them: one part of a table after the other goes through
the atoms that are left, and those that the last atom adds are not even listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from setwise.data.knowledge import KnowledgeBase

_ROWS = 2**18  # of a table while clauses are counted, about


class BodyAtom(NamedTuple):
    """A relation between two variables."""

    relation: str
    first: str
    second: str


@dataclass(frozen=True)
class Join:
    """What an atom adds to clauses in which the variables ``bound`` stand for constants."""

    bound: tuple[str, ...]
    variables: tuple[str, ...]  # of the atom
    facts: NDArray[np.int64]  # a column for each of them, [facts, 1 or 2]
    K: int

    @property
    def bound_after(self) -> tuple[str, ...]:
        """The new variables follow those bound before, in the atom's order."""
        return (*self.bound, *(self.variables[i] for i in self._fresh))

    def extended(self, table: NDArray[np.int64], distinct: bool) -> NDArray[np.int64]:
        """Every row of the table with every fact that agrees on the bound variables.

        With ``distinct``, only rows in which all constants differ.
        """
        start, count = self._matches(table)
        # Row r meets the facts order[start[r]], ..., order[start[r] + count[r] - 1].
        row = np.repeat(np.arange(len(table)), count)
        place = np.arange(len(row)) - np.repeat(count.cumsum() - count, count)
        fact = self._order[start[row] + place]
        found = np.concatenate([table[row], self.facts[fact][:, self._fresh]], axis=1)
        if distinct:
            found = found[(np.diff(np.sort(found, axis=1), axis=1) != 0).all(axis=1)]
        return found

    def counted(self, table: NDArray[np.int64], distinct: bool) -> int:
        """How many rows `extended` gives."""
        if len(self._fresh) > 1:
            return len(self.extended(table, distinct))
        total = int(self._matches(table)[1].sum())
        if not distinct or not self._fresh:  # of a table that has no constant twice, none has
            return total
        facts = self._numbers(self.facts, range(len(self.variables)))
        for column in range(table.shape[1]):  # without those whose constant the row has there
            pair = [
                column if i in self._fresh else self.bound.index(variable)
                for i, variable in enumerate(self.variables)
            ]
            total -= int(np.isin(self._numbers(table, pair), facts).sum())
        return total

    def parts(self, table: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The table in parts that all facts together do not make too long."""
        keys = self._keys[self._order]
        alike = np.diff(np.flatnonzero(np.diff(keys, prepend=-1, append=-1))).max(initial=1)
        rows = max(1, _ROWS // int(alike))
        return [table[first : first + rows] for first in range(0, len(table), rows)]

    @property
    def _shared(self) -> list[int]:
        return [i for i, variable in enumerate(self.variables) if variable in self.bound]

    @property
    def _fresh(self) -> list[int]:
        return [i for i, variable in enumerate(self.variables) if variable not in self.bound]

    def _matches(self, table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each row, where in the order its facts start, and how many they are."""
        rows = self._numbers(table, [self.bound.index(self.variables[i]) for i in self._shared])
        keys = self._keys[self._order]
        start = np.searchsorted(keys, rows, side="left")
        return start, np.searchsorted(keys, rows, side="right") - start

    @cached_property
    def _keys(self) -> NDArray[np.int64]:
        return self._numbers(self.facts, self._shared)

    @cached_property
    def _order(self) -> NDArray[np.int64]:
        return np.argsort(self._keys, kind="stable")

    def _numbers(self, table: NDArray[np.int64], columns: Sequence[int]) -> NDArray[np.int64]:
        """One number for the constants of a row in up to two columns: equal if these are."""
        digits = np.array([self.K, 1])[2 - len(columns) :]
        numbers: NDArray[np.int64] = table[:, list(columns)] @ digits
        return numbers


def joins(body: Sequence[BodyAtom], kb: KnowledgeBase) -> list[Join]:
    """The atoms of a body, in an order that keeps tables small, over a knowledge base."""
    if not isinstance(kb, KnowledgeBase):
        raise TypeError(f"kb: expected a KnowledgeBase, got {type(kb).__name__}")
    found: list[Join] = []
    bound: tuple[str, ...] = ()
    waiting = list(body)
    while waiting:
        # An atom that shares a variable with the table keeps the join small.
        atom = next((a for a in waiting if a.first in bound or a.second in bound), waiting[0])
        waiting.remove(atom)
        facts = kb.pairs(atom.relation)
        variables: tuple[str, ...] = (atom.first, atom.second)
        if atom.first == atom.second:
            facts, variables = facts[facts[:, 0] == facts[:, 1]][:, :1], variables[:1]
        found.append(Join(bound, variables, facts, len(kb.constants)))
        bound = found[-1].bound_after
    return found


def count_clauses(steps: Sequence[Join], distinct: bool, most: int | None) -> int:
    """How many clauses there are, in the memory of a few tables; see `Rule.count`."""
    total = 0
    waiting = [(0, np.zeros((1, 0), np.int64))]  # tables, and the steps that are next for them
    while waiting and (most is None or total <= most):
        step, table = waiting.pop()
        if step == len(steps) - 1:
            total += steps[step].counted(table, distinct)
        else:
            extended = steps[step].extended(table, distinct)
            waiting += [(step + 1, part) for part in steps[step + 1].parts(extended)]
    return total
