"""Which engine serves a call, decided from the tensors of that call.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``; every
query has at least one key whose bias is finite.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from setwise.kernels import operators, reference

Engine = Literal["reference", "chunked", "triton"]
Impl = Literal["auto", "reference", "chunked", "triton"]
IMPLS: tuple[str, ...] = get_args(Impl)

_TRITON_INSTALLED = find_spec("triton") is not None

# Up to this many scores the dense engine is at least as fast (benchmarks/losses_cpu.py) and its
# memory is of no account.
DENSE_SCORES = 2**20


def full_precision(tensor: Tensor) -> AbstractContextManager[None]:
    """Keep autocast away: a score is a small difference of large terms."""
    kind = tensor.device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def choose(impl: Impl, queries: Tensor, keys: Tensor) -> Engine:
    """The engine asked for, or the best one for these tensors; one asked for is never replaced."""
    if impl == "triton":
        _require_triton(queries)
    if impl != "auto":
        return impl
    if queries.device.type == "cuda" and queries.dtype != torch.float64:
        if _has_triton():
            return "triton"
        _warn_without_triton()
    scores = queries.shape[0] * queries.shape[1] * keys.shape[1]
    return "reference" if scores <= DENSE_SCORES else "chunked"


def logsumexp(queries: Tensor, keys: Tensor, bias: Tensor, impl: Impl) -> Tensor:
    """``logsumexp_j score_ij``: [B, M, F], [B, N, F], [B, N] -> [B, M]."""
    engine = choose(impl, queries, keys)
    with full_precision(queries):
        if engine == "reference":
            return reference.logsumexp(queries, keys, bias)
        return operators.LogSumExp.apply(queries, keys, bias, engine)


def fuses_bernoulli(impl: Impl, target: Tensor, logits: Tensor) -> bool:
    """Whether `bernoulli_set_cross_entropy` can serve: the Triton engine, and eager PyTorch."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return choose(impl, target, logits) == "triton"


def bernoulli_set_cross_entropy(
    target: Tensor, logits: Tensor, valid: Tensor | None, weight: Tensor | None, reduction: str
) -> Tensor:
    """Set cross entropy of Bernoulli elements [B, M, F] and [B, N, F] in the fewest launches."""
    from setwise.kernels.bernoulli import BernoulliSetCrossEntropy

    gradient = logits.requires_grad and torch.is_grad_enabled()
    return BernoulliSetCrossEntropy.apply(target, logits, valid, weight, reduction, gradient)


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, impl: Impl) -> Tensor:
    """``argmax_j score_ij``: [B, M, F], [B, N, F], [B, N] -> [B, M]; not differentiable."""
    engine = choose(impl, queries, keys)
    queries, keys, bias = queries.detach(), keys.detach(), bias.detach()
    with full_precision(queries):
        if engine == "reference":
            return reference.argmax(queries, keys, bias)
        return operators.argmax(queries, keys, bias, engine)


def scores(queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """Every ``score_ij``, for reductions that cannot do without: [B, M, N]."""
    return reference.scores(queries, keys, bias)


def _has_triton() -> bool:
    return _TRITON_INSTALLED


@cache
def _warn_without_triton() -> None:
    """Once: a cached function runs its body the first time only."""
    warnings.warn(
        "Triton is not installed, so set losses on CUDA run on slower engines; "
        "install it with: pip install triton",
        stacklevel=2,
    )


def _require_triton(tensor: Tensor) -> None:
    if not _has_triton():
        raise ValueError("impl: 'triton' needs Triton, which is not installed: pip install triton")
    if tensor.dtype == torch.float64:
        raise ValueError("impl: 'triton' computes in float32; use 'chunked' for float64 tensors")
    if tensor.device.type == "cpu" and not _interprets():
        raise ValueError("impl: 'triton' needs CUDA tensors, got CPU ones; use 'auto' or 'chunked'")


def _interprets() -> bool:
    """Whether Triton runs its kernels in its interpreter, the way to run them on a CPU."""
    return bool(import_module("setwise.kernels.triton.launch").INTERPRETED)
