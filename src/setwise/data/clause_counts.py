"""How many clauses a rule has, by sums over matrices: as fast for billions as for none.

Legend: V variables of the rule, K constants.

Choices of constants that make a body true are a sum of products over the matrices of its relations,
``sum_abc R[a, b] S[b, c]``. Those in which no constant stands for two variables follow from such
sums for every way to make variables equal, by Moebius inversion over the partitions of the
variables (Rota, 1964): a part of n variables counts as (-1)^(n - 1) (n - 1)!.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from string import ascii_letters

import numpy as np
from numpy.typing import NDArray

from setwise.data.joins import BodyAtom
from setwise.data.knowledge import KnowledgeBase

_MOST_VARIABLES, _MOST_CONSTANTS = 7, 512
_EXACT = 2**53  # whole numbers up to this are floating-point numbers


def summable(variables: Sequence[str], kb: KnowledgeBase) -> bool:
    """Whether the sums are exact, and not too many nor too long."""
    V, K = len(variables), len(kb.constants)
    return V <= _MOST_VARIABLES and K <= _MOST_CONSTANTS and K**V < _EXACT


def sum_clauses(
    body: Sequence[BodyAtom], variables: Sequence[str], kb: KnowledgeBase, distinct: bool
) -> int:
    """The number of choices of constants for the variables that make the body true."""
    K = len(kb.constants)
    holds: dict[str, NDArray[np.float64]] = {}
    for relation in {atom.relation for atom in body}:
        holds[relation] = np.zeros((K, K))
        holds[relation][tuple(kb.pairs(relation).T)] = 1.0
    total = 0
    for parts in _partitions(variables) if distinct else [[[name] for name in variables]]:
        letter = {name: ascii_letters[i] for i, part in enumerate(parts) for name in part}
        atoms = {(r, letter[first] + letter[second]) for r, first, second in body}
        if any(pair[0] == pair[1] and not holds[relation].trace() for relation, pair in atoms):
            continue  # an atom of one thing twice, and nothing is so related to itself
        sign = math.prod((-1) ** (len(part) - 1) * math.factorial(len(part) - 1) for part in parts)
        indices = ",".join(pair for _, pair in sorted(atoms))
        matrices = [holds[relation] for relation, _ in sorted(atoms)]
        total += sign * round(float(np.einsum(f"{indices}->", *matrices, optimize="greedy")))
    return total


def _partitions(names: Sequence[str]) -> Iterator[list[list[str]]]:
    """Every way to put names into parts."""
    if not names:
        yield []
        return
    *rest, last = names
    for parts in _partitions(rest):
        yield [*parts, [last]]
        for i, part in enumerate(parts):
            yield [*parts[:i], [*part, last], *parts[i + 1 :]]
