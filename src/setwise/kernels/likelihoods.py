"""Likelihoods from fused kernels, where there are any for the call.

Legend: B sets, M targets, N outputs, F features.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from setwise.kernels import dispatch
from setwise.kernels.autocast import no_autocast
from setwise.kernels.ready_loss import ReadyLoss
from setwise.kernels.row_losses import Blocks
from setwise.kernels.transforms import has_tangent, is_eager


class Call(NamedTuple):
    """The likelihood of all sets: ``-log sum_matchings prod_i exp(-w_i H_ij)``, with presence.

    Of sets with more targets than outputs, by their masks, it is infinite, and has no gradient.
    """

    blocks: Blocks
    method: str  # "exact" or "bethe"
    reduction: str
    output_valid: Tensor | None  # [B, N]
    target_valid: Tensor | None  # [B, M]
    weight: Tensor | None  # [B, M]: the w_i
    presence: Tensor | None  # [B, N]: logits
    presence_weight: float


def fuses(target: Tensor, logits: Tensor, weight: Tensor | None, presence: Tensor | None) -> bool:
    """Whether `fused_likelihood` serves such a call: eager, of small sets.

    There must not be more targets than outputs unless masks say so.
    """
    if not dispatch.is_plain(target, logits, weight):
        return False
    if dispatch.fused("subset_sums", logits) is None:
        return False
    if presence is not None and has_tangent(presence):
        return False
    _, N, F = logits.shape
    return bool(dispatch.triton_module("fused_matchings").serves(target.shape[1], N, F))


def fused_likelihood(
    target: Tensor, logits: Tensor, call: Call, again: Callable[..., Tensor]
) -> Tensor:
    """The likelihood in the fewest launches, [B] or reduced; see `ReadyLoss` for ``again``.

    It has gradients to the logits and, if there is any, to presence.
    """
    # Kernels read plain arrays. Here, not in the function: its gradients are of what it was given.
    target, logits = target.contiguous(), logits.contiguous()
    names = ("output_valid", "target_valid", "weight", "presence")
    arrays = {
        name: array.contiguous() for name in names if (array := getattr(call, name)) is not None
    }
    call = call._replace(**arrays)
    compute = partial(dispatch.triton_module("fused_matchings").computed, call, target, logits)
    leaves = (logits,) if call.presence is None else (logits, call.presence)
    loss: Tensor = ReadyLoss.apply(compute, again, torch.is_grad_enabled(), *leaves)
    return loss


def bernoulli_likelihood(
    target: Tensor, logits: Tensor, method: str, reduction: str
) -> Tensor | None:
    """The likelihood of plain Bernoulli elements [B, M, F] and [B, N, F] of sets of any size.

    None where there is no such shortcut for these tensors; of sets that are impossible, too.
    """
    (B, M, _), N = target.shape, logits.shape[1]
    if not is_eager() or not 0 < M <= N or B == 0 or has_tangent(target, logits):
        return None
    if dispatch.fused("bethe", logits) is None or target.dtype != torch.float32 or M * N >= 2**31:
        return None
    if method == "exact" and not dispatch.triton_module("triton.subset_sums").fits(M, N):
        return None
    with no_autocast(logits):
        return dispatch.triton_module("bernoulli_likelihood").BernoulliLikelihood.apply(
            target, logits, method, reduction, torch.is_grad_enabled()
        )
