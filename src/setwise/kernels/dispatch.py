"""Which engine serves a call, decided from the tensors of that call.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``; every
query has at least one key whose bias is finite.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor

from setwise.kernels import operators, reference

Impl = Literal["auto", "reference", "chunked"]
IMPLS: tuple[str, ...] = get_args(Impl)

# Up to this many scores the dense engine is at least as fast (benchmarks/losses_cpu.py) and its
# memory is of no account.
DENSE_SCORES = 2**20


def full_precision(tensor: Tensor) -> AbstractContextManager[None]:
    """Keep autocast away: a score is a small difference of large terms."""
    kind = tensor.device.type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def choose(impl: Impl, queries: Tensor, keys: Tensor) -> Literal["reference", "chunked"]:
    if impl != "auto":
        return impl
    scores = queries.shape[0] * queries.shape[1] * keys.shape[1]
    return "reference" if scores <= DENSE_SCORES else "chunked"


def logsumexp(queries: Tensor, keys: Tensor, bias: Tensor, impl: Impl) -> Tensor:
    """``logsumexp_j score_ij``: [B, M, F], [B, N, F], [B, N] -> [B, M]."""
    dense = choose(impl, queries, keys) == "reference"
    with full_precision(queries):
        if dense:
            return reference.logsumexp(queries, keys, bias)
        return operators.LogSumExp.apply(queries, keys, bias)


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, impl: Impl) -> Tensor:
    """``argmax_j score_ij``: [B, M, F], [B, N, F], [B, N] -> [B, M]; not differentiable."""
    engine = reference if choose(impl, queries, keys) == "reference" else operators
    with full_precision(queries):
        return engine.argmax(queries.detach(), keys.detach(), bias.detach())


def scores(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """Every ``score_ij``, for reductions that cannot do without: [B, M, N]."""
    return reference.scores(queries, keys, bias)
