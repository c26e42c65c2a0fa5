"""The dense engine: the score matrix in full. Obvious, differentiable, and the oracle of the rest.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``. With a
``sharpness`` [B, D] the first D features are compared, not multiplied: they add
``-sum_f sharpness_f (queries_if - keys_jf)^2``.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from setwise.kernels import differences
from setwise.kernels.powers import not_too_small

# log(1 + e^z) equals z to the last bit of a double beyond this point.
SOFTPLUS_IS_IDENTITY = 40.0


def scores(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None = None) -> Tensor:
    """[B, M, F], [B, N, F], [B, N] -> [B, M, N]."""
    if sharpness is not None:
        D = sharpness.shape[1]
        apart = differences.squares(queries[..., :D], keys[..., :D], sharpness)
        if keys.shape[2] == D:
            return bias.unsqueeze(1) - apart
        return scores(queries[..., D:], keys[..., D:], bias) - apart
    # Computed as its transpose: then the gradient to the keys comes out contiguous.
    return torch.baddbmm(bias.unsqueeze(2), keys, queries.transpose(1, 2)).transpose(1, 2)


def bernoulli_bias(logits: Tensor) -> Tensor:
    """``-A(y) = -sum softplus(y)`` of Bernoulli outputs [B, N, F], shape [B, N]."""
    return -F.softplus(logits, threshold=SOFTPLUS_IS_IDENTITY).sum(-1)


def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None = None
) -> Tensor:
    """``log sum_j exp(score_ij)``, shape [B, M].

    Relative to the largest score: PyTorch takes softmax weights relative to the logsumexp, and if
    that is so large that it rounds by more than 1, they do not add up to 1.
    """
    all_scores = scores(queries, keys, bias, sharpness)
    top = all_scores.detach().amax(dim=-1)
    top = top.masked_fill(~top.isfinite(), 0.0)
    return top + torch.logsumexp(not_too_small(all_scores - top.unsqueeze(-1)), dim=-1)


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None = None) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]."""
    return scores(queries, keys, bias, sharpness).argmax(dim=-1)
