"""What the existence of outputs costs: every output is there or not, each by a coin of its own.

Legend: B sets, N outputs, M targets; ``c_j`` the probability that output j exists.

A set is produced in two steps: each output exists with probability ``c_j``, and those that exist
produce one element each. Losses that match targets with outputs pay ``-log c_j`` for an output that
is used and ``-log(1 - c_j)`` for one that is not, which is the likelihood of this model. In losses
by rows several targets may choose one output, and a confident one would be paid by all of them
while it pays once: there ``-log c_j`` is the cost of a choice, which is never a gain, and the
number of elements is asked for apart.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from setwise.arguments import Sets, check_number, check_presence
from setwise.kernels.counting import Elsewhere, log_count_probability
from setwise.kernels.reference import SOFTPLUS_IS_IDENTITY


class Presence(NamedTuple):
    """Logits [B, N] of a checked call, 0 where an output is not valid, and what they weigh."""

    logits: Tensor
    weight: float

    def probabilities(self) -> Tensor:
        """[B, N]"""
        return self.logits.sigmoid()

    def odds(self) -> Tensor:
        """What the use of an output gains over leaving it out: [B, N]."""
        return self.weight * self.logits

    def all_absent(self, sets: Sets) -> Tensor:
        """The cost of leaving all outputs out: [B]."""
        absent = self.absence()
        if sets.output_valid is not None:
            absent = absent.masked_fill(~sets.output_valid, 0.0)
        return absent.sum(dim=-1)

    def absence(self) -> Tensor:
        """The cost of leaving an output out, never negative: [B, N]."""
        return self.weight * functional.softplus(self.logits, threshold=SOFTPLUS_IS_IDENTITY)

    def choice(self) -> Tensor:
        """The cost of choosing an output, never negative: [B, N]."""
        return self.weight * functional.softplus(-self.logits, threshold=SOFTPLUS_IS_IDENTITY)

    def size(self, sets: Sets) -> Tensor:
        """The cost of the number of targets: [B]; never negative."""
        targets, outputs = sets.masks()
        return self.of_size(targets.sum(dim=-1), outputs)

    def of_size(self, size: Tensor, outputs: Tensor, elsewhere: Elsewhere | None = None) -> Tensor:
        """The cost of ``size`` [B] outputs among the valid ones [B, N], and those elsewhere."""
        return -self.weight * log_count_probability(self.logits, outputs, size, elsewhere)


def read_presence(
    presence: Tensor | None, presence_weight: float, input: Tensor, sets: Sets
) -> Presence | None:
    """What a call says about presence; None if nothing."""
    weight = check_number("presence_weight", presence_weight, 0.0, 1e6)
    logits = check_presence(presence, input, sets)
    return None if logits is None else Presence(logits, weight)


def too_few_outputs(sets: Sets) -> Tensor:
    """Sets [B] with more targets than outputs."""
    targets, outputs = sets.masks()
    return torch.gt(targets.sum(dim=-1), outputs.sum(dim=-1))
