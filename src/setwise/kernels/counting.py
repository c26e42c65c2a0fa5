"""How many of several independent things happen: the Poisson binomial distribution.

Legend: B sets, N outputs, M the largest number that is asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from setwise.kernels.permanent import NEVER


def log_count_probability(logits: Tensor, valid: Tensor, count: Tensor, most: int) -> Tensor:
    """The log of the probability [B] that ``count`` [B] of the valid things [B, N] happen.

    ``logits`` [B, N] are those of each; no count is above ``most``. One after the other, in
    logarithms and with positive terms only: also what is very unlikely has its right value.
    """
    happens = torch.where(valid, functional.logsigmoid(logits), NEVER)
    fails = torch.where(valid, functional.logsigmoid(-logits), 0.0)
    counts = logits.new_full((len(logits), most + 1), NEVER)
    counts = torch.where(torch.arange(most + 1, device=logits.device) == 0, 0.0, counts)
    for yes, no in zip(happens.unbind(1), fails.unbind(1), strict=True):
        one_more = functional.pad(counts[:, :-1], (1, 0), value=NEVER)
        counts = torch.logaddexp(counts + no.unsqueeze(1), one_more + yes.unsqueeze(1))
    return counts.gather(1, count.unsqueeze(1)).squeeze(1)
