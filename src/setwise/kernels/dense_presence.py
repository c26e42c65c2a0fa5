"""Losses by rows with presence, of the built-in families on a CPU: few steps, as `dense_losses`.

Legend: B sets, N outputs, F features.

A target pays for the output that it chooses, and the set for the number of its outputs: the first
is one more term of every score, of which `dense_losses` tells the derivative anyway, and the second
a loss of its own.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from setwise.kernels import dense_losses
from setwise.kernels.dense_elements import Elements
from setwise.kernels.host_counting import counted
from setwise.kernels.row_losses import Call, Existence


@np.errstate(all="ignore")
def computed(
    call: Call, elements: Elements, existence: Existence, dtype: torch.dtype, gradient: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The losses [B], and their gradients to logits [B, N, F] and to those of existence [B, N]."""
    exists, weight = existence.logits.detach(), existence.weight
    elements.charge(existence.choice.numpy(force=True).astype(elements.keys.dtype, copy=False))
    per_set, pulls = dense_losses.reduced(call, elements, gradient)
    logs, of_number = counted(exists, existence.valid, existence.number, gradient)
    losses = (torch.from_numpy(per_set) - weight * logs).to(dtype)
    if pulls is None or of_number is None:
        return losses, None, None
    chosen = torch.from_numpy(pulls[1][..., 0]) * (-exists).sigmoid()
    of_existence = weight * (chosen - of_number)
    of_elements = torch.from_numpy(elements.gradient(*pulls))
    return losses, of_elements.to(dtype), of_existence.to(dtype)
