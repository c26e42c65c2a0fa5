"""Planning tasks over latent codes as SAS+ text, the input of Fast Downward's search.

Legend: K codes (nodes), L bits, E steps (operators), V variables, k operators of one chunk.

SAS+ has variables of finitely many values (Backstrom and Nebel, 1995; Helmert, 2006). A state is
one value of each. Every step of a latent graph becomes one operator of unit cost that requires all
variables of the code before and changes some, as in Latplan's AMA1 (Asai and Fukunaga, 2018): the
planner can take the steps of the graph and no others. A choice of variables that tells all codes
apart therefore gives the same plans; fewer variables only make the text shorter:

- ``full``: the L bits, as in AMA1;
- ``bits``: some of the bits, enough to tell all codes apart;
- ``index``: the number of the code, as two digits; one variable would do, but Fast Downward prints
  the name of every value of every variable, and that takes longer than reading the second digit.

Operators are text of fixed layout, so whole chunks are laid out as arrays of bytes, padded with
zero bytes, which are dropped at last.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from setwise.planning.graph import LatentGraph

Encoding = Literal["full", "bits", "index"]
Bytes = NDArray[np.uint8]

_CHUNK_BYTES = 2**22  # of padded text laid out at once


@dataclass(frozen=True)
class Variables:
    """What a planner knows of each code."""

    values: NDArray[np.int32]  # [K, V]
    names: list[str]  # V
    sizes: list[int]  # V; variable v has the values 0 to sizes[v] - 1


def variables_of(graph: LatentGraph, encoding: Encoding = "index") -> Variables:
    """The variables of an encoding, with their value for every code."""
    if encoding == "index":
        nodes = np.arange(len(graph.codes), dtype=np.int32)
        base = max(2, math.isqrt(len(nodes) - 1) + 1)
        return Variables(np.stack(np.divmod(nodes, base), axis=1), ["high", "low"], [base] * 2)
    if encoding not in get_args(Encoding):
        raise ValueError(f"encoding: expected one of {get_args(Encoding)}, got {encoding!r}")
    every_bit = np.arange(graph.codes.shape[1])
    bits = every_bit if encoding == "full" else identifying_bits(graph.codes)
    values = graph.codes[:, bits].astype(np.int32)
    return Variables(values, [f"z{bit}" for bit in bits], [2] * len(bits))


def identifying_bits(codes: NDArray[np.bool_]) -> NDArray[np.int64]:
    """A few bits, at least one, that tell all distinct codes [K, L] apart, in ascending order.

    Greedy: the bit that parts the most pairs of codes that are still alike, until there are none.

    >>> identifying_bits(np.array([[0, 0, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]], dtype=bool))
    array([1, 3])
    """
    chosen: list[int] = []
    rest = codes.view(np.uint8)  # sorted by what the chosen bits say; codes alike are neighbours
    starts = np.zeros(1, dtype=np.int64)  # of each group of codes alike
    while len(rest) > 1:
        sizes = np.diff(starts, append=len(rest))[:, None]
        ones = np.add.reduceat(rest, starts, axis=0, dtype=np.int32)
        parted = (ones * (sizes - ones).astype(np.float64)).sum(axis=0)
        bit = int(parted.argmax())
        if parted[bit] == 0:
            raise ValueError("codes: expected distinct rows, some are equal")
        chosen.append(bit)
        group = 2 * np.repeat(np.arange(len(starts)), sizes[:, 0]) + rest[:, bit]
        many = np.bincount(group)[group] > 1
        order = np.flatnonzero(many)[group[many].argsort(kind="stable")]
        rest, group = rest[order], group[order]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.sort(np.array(chosen or [0], dtype=np.int64))


def write_task(
    path: Path, variables: Variables, operators: Path, count: int, init: int, goal: int
) -> None:
    """One problem: from node ``init`` to node ``goal`` by the ``count`` operators of a file.

    The operators are most of the text and the same for all problems of a graph: they are written
    once, by `write_operators`, and copied from there.
    """
    with path.open("wb") as task, operators.open("rb") as source:
        task.write(_head(variables, init, goal, count))
        shutil.copyfileobj(source, task, 2**20)
        task.write(b"0\n")  # axioms


def write_operators(
    file: BinaryIO, variables: Variables, edges: NDArray[np.int64], chunk_bytes: int = _CHUNK_BYTES
) -> None:
    """The operators of all steps [E, 2], in order; the name of the e-th is ``t`` and e.

    Memory for a chunk of about ``chunk_bytes`` is needed beside the arrays, however many steps.
    """
    layout = _Layout(variables, len(edges))
    rows = max(1, chunk_bytes // layout.width)
    for start in range(0, len(edges), rows):
        file.write(layout.text(start, edges[start : start + rows]))


def step_of(operator: str) -> int:
    """The step e that an operator's name stands for."""
    if not operator.startswith("t") or not operator[1:].isdecimal():
        raise ValueError(f"operator: expected t0, t1, ..., got {operator!r}")
    return int(operator[1:])


def _head(variables: Variables, init: int, goal: int, operators: int) -> bytes:
    lines = ["begin_version", "3", "end_version", "begin_metric", "0", "end_metric"]
    lines.append(str(len(variables.names)))
    for name, size in zip(variables.names, variables.sizes, strict=True):
        lines += ["begin_variable", name, "-1", str(size)]
        lines += [f"Atom {name}({value})" for value in range(size)]
        lines.append("end_variable")
    lines += ["0", "begin_state", *map(str, variables.values[init].tolist()), "end_state"]
    goals = [f"{v} {value}" for v, value in enumerate(variables.values[goal].tolist())]
    lines += ["begin_goal", str(len(goals)), *goals, "end_goal", str(operators)]
    return ("\n".join(lines) + "\n").encode()


class _Layout:
    """Where the parts of an operator's text stand in a row of bytes of fixed ``width``.

    A variable that stays as it is makes a line ``v value`` under the first count, one that changes
    a line ``0 v before after`` under the second; each has room for both, of which one stays empty.
    """

    def __init__(self, variables: Variables, operators: int) -> None:
        self.values = variables.values
        V = len(variables.names)
        self.digits = _decimals(max(*variables.sizes, V + 1))
        self.name_digits = len(str(operators))
        number = _decimals(V)
        value = np.zeros((V, self.digits.shape[1]), dtype=np.uint8)
        kept = [number, _column(V, b" "), value, _column(V, b"\n")]
        changed = [_column(V, b"0 "), number, _column(V, b" "), value, _column(V, b" "), value]
        self.kept = np.concatenate(kept, axis=1)
        self.changed = np.concatenate([*changed, _column(V, b"\n")], axis=1)
        frame = len(b"begin_operator\nt\n\n\n1\nend_operator\n") + 2 * self.digits.shape[1]
        self.width = frame + self.name_digits + self.kept.size + self.changed.size

    def text(self, start: int, edges: NDArray[np.int64]) -> bytes:
        k = len(edges)
        before, after = self.values[edges[:, 0]], self.values[edges[:, 1]]
        change = before != after
        changes = change.sum(axis=1)
        names = np.arange(start, start + k).astype(f"S{self.name_digits}")
        parts = [
            _column(k, b"begin_operator\nt"),
            names.view(np.uint8).reshape(k, -1),
            _column(k, b"\n"),
            self.digits[change.shape[1] - changes],
            _column(k, b"\n"),
            self._lines(self.kept, ~change, [before]),
            self.digits[changes],
            _column(k, b"\n"),
            self._lines(self.changed, change, [before, after]),
            _column(k, b"1\nend_operator\n"),
        ]
        return np.concatenate(parts, axis=1).tobytes().translate(None, b"\0")

    def _lines(
        self, template: Bytes, shown: NDArray[np.bool_], values: list[NDArray[np.int32]]
    ) -> Bytes:
        """A line [V, w] a variable, filled in from the right; empty where not ``shown`` [k, V]."""
        lines = np.broadcast_to(template, (len(shown), *template.shape)).copy()
        digits, end = self.digits.shape[1], template.shape[1] - 1
        for value in reversed(values):
            lines[..., end - digits : end] = self.digits.take(value, axis=0)
            end -= digits + 1
        lines *= shown[..., None]
        return lines.reshape(len(shown), -1)


def _decimals(count: int) -> Bytes:
    """The numbers below ``count`` in decimal [count, w], zero bytes where they are shorter."""
    return np.arange(count).astype(f"S{len(str(count - 1))}").view(np.uint8).reshape(count, -1)


def _column(rows: int, text: bytes) -> Bytes:
    return np.broadcast_to(np.frombuffer(text, dtype=np.uint8), (rows, len(text)))
