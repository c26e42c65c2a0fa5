"""Calls of the built-in families that are computed in few steps on a CPU, and their autograd.

Legend: B sets, N outputs.

Such a call is prepared first, which tells whether it can be computed so.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from setwise.kernels import dense_losses, dense_matchings, dense_presence, dispatch, trees
from setwise.kernels.dense_elements import Elements
from setwise.kernels.dispatch import Impl
from setwise.kernels.ready_loss import ReadyLoss
from setwise.kernels.row_losses import Blocks, Call, Existence, Mode


def row_elements(
    impl: Impl,
    blocks: Blocks,
    mode: Mode,
    skip_negligible: bool,
    target: Tensor,
    logits: Tensor,
    temperature: float | Tensor,
    *others: object,
) -> Elements | None:
    """What `row_loss` takes, or None where it does not serve; arguments as of `dispatch.fuses`.

    Not for points that trees help with, nor where coordinates have to be compared.
    """
    if impl != "auto" or not _suits(target, logits, temperature, *others):
        return None
    searched = all(name == "square" for name, _, _ in blocks)
    searched = searched and trees.suit_sizes(target.shape[1], *logits.shape[1:])
    if searched and mode != "soft":
        return None
    elements = dense_losses.prepared(blocks, mode, target, logits, temperature)
    if elements is not None and searched and skip_negligible:
        some = dense_losses.scores(elements, trees.sample(target.shape[1]), float(temperature))
        return None if trees.few_matter(some.to(logits.dtype)) else elements
    return elements


def pair_elements(
    blocks: Blocks, target: Tensor, logits: Tensor, *others: object
) -> Elements | None:
    """What `matched_loss` takes, as of `row_elements`: a matching needs every cost."""
    if not _suits(target, logits, *others):
        return None
    return dense_losses.prepared(blocks, "mean", target, logits, 1.0)


def _suits(target: Tensor, logits: Tensor, *others: object) -> bool:
    on_host = logits.device.type == "cpu" and len(logits) > 0
    return on_host and dispatch.is_plain(target, logits, *others)


def row_loss(
    logits: Tensor,
    elements: Elements,
    call: Call,
    again: Callable[..., Tensor],
    existence: Existence | None = None,
) -> Tensor:
    """A set loss of `row_elements` in few steps on the CPU; see `ReadyLoss` for ``again``.

    Of outputs that may not exist it is that of each set [B], in one direction.
    """
    compute: Callable[[bool], tuple[Tensor | None, ...]]
    leaves = [logits]
    if existence is None:
        compute = partial(dense_losses.computed, call, elements, logits.dtype)
    else:
        compute = partial(dense_presence.computed, call, elements, existence, logits.dtype)
        leaves.append(existence.logits)
    loss: Tensor = ReadyLoss.apply(compute, again, torch.is_grad_enabled(), *leaves)
    return loss


def matched_loss(
    logits: Tensor,
    elements: Elements,
    matching: Tensor,
    weight: Tensor | None,
    reduction: str,
    again: Callable[[Tensor], Tensor],
) -> Tensor:
    """What pairs of a matching cost, [B] or reduced, on the CPU; see `ReadyLoss` for ``again``."""
    compute = partial(dense_matchings.matched, elements, matching, weight, reduction, logits.dtype)
    costs: Tensor = ReadyLoss.apply(compute, again, torch.is_grad_enabled(), logits)
    return costs
