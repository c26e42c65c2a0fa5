"""The engines as PyTorch operators, with everything PyTorch wants to know of them.

An engine supplies plain functions on batches [B, ...]; here they become operators that
``torch.compile`` keeps whole, that differentiate twice, and that ``vmap`` by folding the mapped
dimension into B. The derivative formulas are written once, whatever engine runs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from setwise.kernels import chunked
from setwise.kernels.autocast import no_autocast


def _engine(name: str) -> Any:
    """The module of an engine; Triton's is imported when first asked for."""
    if name == "chunked":
        return chunked
    assert name == "triton"
    return import_module("setwise.kernels.triton.engine")


@torch.library.custom_op("setwise::logsumexp", mutates_args=())
def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, engine: str, record: bool
) -> tuple[Tensor, Tensor]:
    """``logsumexp_j(queries_i . keys_j + bias_j)``: [B, M, F], [B, N, F], [B, N] -> [B, M].

    To ``record`` also gives the peaks by which `logsumexp_backward` knows tiles that it may skip;
    they are empty if not asked for, or where it does not pay.
    """
    peaks = None
    with no_autocast(queries):
        if engine == "triton":
            lse, peaks = _engine(engine).logsumexp(queries, keys, bias, record)
        else:
            lse = _engine(engine).logsumexp(queries, keys, bias)
    return lse, bias.new_empty(len(bias), 0, 0, 0) if peaks is None else peaks


@torch.library.custom_op("setwise::logsumexp_backward", mutates_args=())
def logsumexp_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    lse: Tensor,
    peaks: Tensor,
    need_queries: bool,
    need_keys: bool,
    engine: str,
) -> tuple[Tensor, Tensor, Tensor]:
    needs = (need_queries, need_keys)
    with no_autocast(queries):
        if engine == "triton":
            seen = peaks if peaks.shape[1] else None
            return _engine(engine).logsumexp_backward(grad, queries, keys, bias, lse, seen, *needs)
        return _engine(engine).logsumexp_backward(grad, queries, keys, bias, lse, *needs)


@torch.library.custom_op("setwise::logsumexp_double_backward", mutates_args=())
def logsumexp_double_backward(
    u: Tensor | None,
    v: Tensor | None,
    w: Tensor,
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    with no_autocast(queries):
        return chunked.logsumexp_double_backward(u, v, w, grad, queries, keys, bias, lse)


@torch.library.custom_op("setwise::argmax", mutates_args=())
def argmax(queries: Tensor, keys: Tensor, bias: Tensor, engine: str) -> Tensor:
    """``argmax_j(queries_i . keys_j + bias_j)``, shape [B, M]."""
    return _engine(engine).argmax(queries, keys, bias)


@logsumexp.register_fake
def _(
    queries: Tensor, keys: Tensor, bias: Tensor, engine: str, record: bool
) -> tuple[Tensor, Tensor]:
    (B, M, F), N = queries.shape, keys.shape[1]
    shape = None
    if engine == "triton" and record:
        shape = _engine(engine).peaks_shape(B, M, N, F)
    return bias.new_empty(B, M), bias.new_empty(shape or (B, 0, 0, 0))


@argmax.register_fake
def _(queries: Tensor, keys: Tensor, bias: Tensor, engine: str) -> Tensor:
    return queries.new_empty(queries.shape[:2], dtype=torch.long)


@logsumexp_backward.register_fake
def _(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    lse: Tensor,
    peaks: Tensor,
    need_queries: bool,
    need_keys: bool,
    engine: str,
) -> tuple[Tensor, Tensor, Tensor]:
    d_queries = queries.new_empty((queries if need_queries else queries[:, :0]).shape)
    d_keys = keys.new_empty((keys if need_keys else keys[:, :0]).shape)
    return d_queries, d_keys, bias.new_empty(bias.shape)


@logsumexp_double_backward.register_fake
def _(
    u: Tensor | None,
    v: Tensor | None,
    w: Tensor,
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    lse: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d = (t.new_empty(t.shape) for t in (grad, queries, keys, bias))
    return a, b, c, d


def differentiable_logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, engine: str, skip_negligible: bool
) -> Tensor:
    """`logsumexp` with its derivatives; without a backward pass to come nothing is recorded."""
    tensors = queries, keys, bias
    # A mapped tensor does not tell whether it wants a gradient.
    mapped = torch._C._functorch.is_batchedtensor
    wanted = any(t.requires_grad for t in tensors) or any(mapped(t) for t in tensors)
    record = skip_negligible and torch.is_grad_enabled() and wanted
    lse, _ = LogSumExp.apply(queries, keys, bias, engine, record)
    return lse


class LogSumExp(torch.autograd.Function):
    """The differentiable face of `logsumexp`, whose second result is for its backward pass alone.

    A Function rather than ``register_autograd``: only a Function with ``setup_context`` can be
    transformed by ``torch.func``.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        queries: Tensor, keys: Tensor, bias: Tensor, engine: str, record: bool
    ) -> tuple[Tensor, Tensor]:
        return logsumexp(queries, keys, bias, engine, record)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.engine, _ = inputs
        ctx.save_for_backward(*tensors, *output)
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)  # of the peaks it would be a tensor of zeros

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 5
        need_queries, need_keys, need_bias, *_options = ctx.needs_input_grad
        d_queries, d_keys, d_bias = LogSumExpBackward.apply(
            grad, *ctx.saved_tensors, need_queries, need_keys, ctx.engine
        )
        return (
            d_queries if need_queries else None,
            d_keys if need_keys else None,
            d_bias if need_bias else None,
            None,
            None,
        )


class LogSumExpBackward(torch.autograd.Function):
    """The backward pass as a function of its own, so that it can be differentiated in turn."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor,
        queries: Tensor,
        keys: Tensor,
        bias: Tensor,
        lse: Tensor,
        peaks: Tensor,
        need_queries: bool,
        need_keys: bool,
        engine: str,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return logsumexp_backward(
            grad, queries, keys, bias, lse, peaks, need_queries, need_keys, engine
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, _peaks, ctx.need_queries, ctx.need_keys, _engine = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, u: Tensor, v: Tensor, w: Tensor) -> tuple[Tensor | None, ...]:
        d_grad, d_queries, d_keys, d_bias = logsumexp_double_backward(
            u if ctx.need_queries else None, v if ctx.need_keys else None, w, *ctx.saved_tensors
        )
        return d_grad, d_queries, d_keys, d_bias, None, None, None, None, None


def fold_mapped_dimension(op: Callable[..., Any]) -> Callable[..., Any]:
    """A vmap rule for operators whose tensors all start with the batch dimension B."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any) -> tuple[Any, Any]:
        size = info.batch_size

        def fold(arg: Any, dim: int | None) -> Any:
            if not isinstance(arg, Tensor):
                return arg
            mapped = (
                arg.unsqueeze(0).expand(size, *arg.shape) if dim is None else arg.movedim(dim, 0)
            )
            return mapped.flatten(0, 1)

        result = op(*(fold(arg, dim) for arg, dim in zip(args, in_dims, strict=True)))
        unfold = lambda t: t.unflatten(0, (size, -1))  # noqa: E731
        if isinstance(result, Tensor):
            return unfold(result), 0
        return tuple(unfold(t) for t in result), (0,) * len(result)

    return rule


for _op in (logsumexp, logsumexp_backward, logsumexp_double_backward, argmax):
    _op.register_vmap(fold_mapped_dimension(_op))
