"""The dense engine: the score matrix in full. Obvious, differentiable, and the oracle of the rest.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# log(1 + e^z) equals z to the last bit of a double beyond this point.
SOFTPLUS_IS_IDENTITY = 40.0


def scores(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """[B, M, F], [B, N, F], [B, N] -> [B, M, N]."""
    # Computed as its transpose: then the gradient to the keys comes out contiguous.
    return torch.baddbmm(bias.unsqueeze(2), keys, queries.transpose(1, 2)).transpose(1, 2)


def bernoulli_bias(logits: Tensor) -> Tensor:
    """``-A(y) = -sum softplus(y)`` of Bernoulli outputs [B, N, F], shape [B, N]."""
    return -F.softplus(logits, threshold=SOFTPLUS_IS_IDENTITY).sum(-1)


def logsumexp(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``log sum_j exp(score_ij)``, shape [B, M]."""
    return torch.logsumexp(scores(queries, keys, bias), dim=-1)


def argmax(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]."""
    return scores(queries, keys, bias).argmax(dim=-1)
