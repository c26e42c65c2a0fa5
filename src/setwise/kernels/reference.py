"""The dense engine: the score matrix in full. Obvious, differentiable, and the oracle of the rest.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def scores(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """[B, M, F], [B, N, F], [B, N] -> [B, M, N]."""
    # Computed as its transpose: then the gradient to the keys comes out contiguous.
    return torch.baddbmm(bias.unsqueeze(2), keys, queries.transpose(1, 2)).transpose(1, 2)


def logsumexp(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``log sum_j exp(score_ij)``, shape [B, M]."""
    return torch.logsumexp(scores(queries, keys, bias), dim=-1)


def argmax(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]."""
    return scores(queries, keys, bias).argmax(dim=-1)
