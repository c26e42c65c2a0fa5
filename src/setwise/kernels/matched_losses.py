"""A loss under one matching, with gradients that are ready at once: which calls have kernels.

Legend: B sets, M targets, N outputs, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from setwise.kernels import dispatch
from setwise.kernels.ready_loss import ReadyLoss
from setwise.kernels.row_losses import Blocks
from setwise.kernels.transforms import has_tangent

# Features of an element at most: a block of them is held in registers.
MAX_FEATURES = 1024
# Elements of a set, and features of them, that a program holds all pairs of: as of `small_losses`.
SMALL_ELEMENTS, SMALL_FEATURES = 64, 256

# How a matching is found; "known" is one that is given.
Search = Literal["cheapest", "stable", "known"]


class MatchedCall(NamedTuple):
    """One loss of all sets, but for what it is differentiated by."""

    blocks: Blocks
    search: Search
    reduction: str
    target: Tensor  # [B, M, F]
    output_valid: Tensor | None  # [B, N]
    target_valid: Tensor | None  # [B, M]
    weight: Tensor | None  # [B, M]
    presence_weight: float
    matching: Tensor  # [B, M]: the output of each target or -1; filled unless it is known
    root: bool  # whether pairs cost the root of a square; of points, not if it is stable


def fuses(target: Tensor, logits: Tensor, presence: Tensor | None, weight: Tensor | None) -> bool:
    """Whether `loss` serves such a call of the built-in families."""
    if logits.dtype != torch.float32 or logits.shape[2] > MAX_FEATURES:
        return False
    if dispatch.choose("auto", target, logits) != "triton":
        return False
    if presence is not None and has_tangent(presence):
        return False
    return dispatch.is_plain(target, logits, weight)


def fuses_compiled(
    target: Tensor, logits: Tensor, presence: Tensor | None, weight: Tensor | None
) -> bool:
    """Whether `compiled_matching.matched_loss` serves such a call inside ``torch.compile``.

    If the sets are small: see `searches`.
    """
    if presence is not None and torch._C._functorch.is_batchedtensor(presence):
        return False
    if not dispatch.is_plain_compiled(target, logits, weight):
        return False
    return dispatch.choose("auto", target, logits) == "triton"


def searches(target: Tensor, logits: Tensor) -> bool:
    """Whether kernels find the matching, too, of sets that they serve: those that are small."""
    (_, N, F), M = logits.shape, target.shape[1]
    return M <= SMALL_ELEMENTS and N <= SMALL_ELEMENTS and F <= SMALL_FEATURES


def loss(
    logits: Tensor, presence: Tensor | None, call: MatchedCall, again: Callable[..., Tensor]
) -> Tensor:
    """The loss, [B] or reduced, with gradients to the logits and to the presence [B, N].

    See `ReadyLoss` for ``again``, which goes by the matching that was found.
    """
    # Kernels read plain arrays. Here, not in the function: its gradients are of what it was given.
    logits = logits.contiguous()
    presence = None if presence is None else presence.contiguous()
    names = ("target", "output_valid", "target_valid", "weight", "matching")
    call = call._replace(
        **{name: array.contiguous() for name in names if (array := getattr(call, name)) is not None}
    )
    compute = partial(dispatch.triton_module("matched_launches").computed, call, logits, presence)
    leaves = (logits,) if presence is None else (logits, presence)
    value: Tensor = ReadyLoss.apply(compute, again, torch.is_grad_enabled(), *leaves)
    return value
