"""The graph that a planner searches: the distinct codes of a latent space and the steps between.

Legend: S states, L bits of a code, T transitions, K distinct codes (nodes), E distinct steps.

States with the same code are one node, so a step between codes stands for all transitions between
their states: what a planner finds here is right only as far as the codes tell states apart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True)
class LatentGraph:
    """Distinct codes and distinct steps, in an order that depends on the codes alone."""

    codes: NDArray[np.bool_]  # [K, L]
    edges: NDArray[np.int64]  # [E, 2], nodes before and after, sorted; none leads to itself
    node_of: NDArray[np.int64]  # [S], the node of each state

    def nearest(self, code: ArrayLike) -> tuple[int, int]:
        """The node whose code is nearest to ``code`` [L], and in how many bits it differs."""
        code = np.asarray(code)
        if code.dtype != np.bool_ or code.shape != self.codes.shape[1:]:
            raise ValueError(
                f"code: expected {self.codes.shape[1]} booleans, got {code.dtype} {code.shape}"
            )
        distances = (self.codes != code).sum(axis=1)
        node = int(distances.argmin())
        return node, int(distances[node])

    def states_per_node(self) -> NDArray[np.int64]:
        """How many states [K] share each code; above 1 they cannot be told apart."""
        return np.bincount(self.node_of, minlength=len(self.codes))


def latent_graph(codes: ArrayLike, transitions: ArrayLike | None = None) -> LatentGraph:
    """The graph of state codes [S, L] and transitions [T, 2] between the states' indices.

    Or of pairs of codes [T, 2, L] alone, before and after each transition; the states are then
    these 2 T codes in turn.

    >>> graph = latent_graph([[True, True], [False, False], [True, True]], [[0, 1], [2, 1], [0, 2]])
    >>> graph.codes.tolist(), graph.edges.tolist(), graph.node_of.tolist()
    ([[False, False], [True, True]], [[1, 0]], [1, 0, 1])
    """
    codes = np.asarray(codes)
    if codes.dtype != np.bool_:
        raise TypeError(f"codes: expected booleans, got {codes.dtype}; use codes > 0.5")
    if transitions is None:
        if codes.ndim != 3 or codes.shape[1] != 2:
            raise ValueError(
                f"codes: expected shape [transitions, 2, bits], got {codes.shape}; "
                f"codes [states, bits] need transitions [T, 2] beside them"
            )
        transitions = np.arange(2 * len(codes)).reshape(-1, 2)
        codes = codes.reshape(-1, codes.shape[2])
    if codes.ndim != 2 or 0 in codes.shape:
        raise ValueError(f"codes: expected shape [states, bits], none 0, got {codes.shape}")
    transitions = np.asarray(transitions)
    _check_transitions(transitions, len(codes))

    first, node_of = distinct_rows(codes)
    before, after = node_of[transitions].T
    keys = np.unique((before * len(first) + after)[before != after])
    edges = np.stack(np.divmod(keys, len(first)), axis=1)
    return LatentGraph(codes[first], edges, node_of)


def distinct_rows(codes: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each distinct row first occurs [K], and which of them every row is [S].

    The distinct rows are in lexicographic order of their bits. Sorting a few words a row is much
    faster than sorting rows of bits.
    """
    packed = np.packbits(codes, axis=1)
    missing = -packed.shape[1] % 8
    words = np.pad(packed, ((0, 0), (0, missing))).view(">u8").astype(np.uint64)
    order = np.lexsort(words.T[::-1])
    ordered = words[order]
    starts = np.ones(len(codes), dtype=np.bool_)
    starts[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    which = np.empty(len(codes), dtype=np.int64)
    which[order] = starts.cumsum() - 1
    return order[starts], which


def _check_transitions(transitions: NDArray[np.generic], states: int) -> None:
    if not np.issubdtype(transitions.dtype, np.integer):
        raise TypeError(f"transitions: expected integers, got {transitions.dtype}")
    if transitions.ndim != 2 or transitions.shape[1] != 2:
        raise ValueError(f"transitions: expected shape [T, 2], got {transitions.shape}")
    if transitions.size and not (transitions.min() >= 0 and transitions.max() < states):
        raise ValueError(
            f"transitions: expected indices of {states} states, got "
            f"{transitions.min()} to {transitions.max()}"
        )
