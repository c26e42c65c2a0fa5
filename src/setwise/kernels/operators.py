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

from setwise.kernels import chunked, trees
from setwise.kernels.autocast import no_autocast

# Engines of points, which sort both sides and give the orders with a logsumexp.
SORTING = ("clouds", "trees")


def _engine(name: str) -> Any:
    """The module of an engine; Triton's is imported when first asked for."""
    if name == "chunked":
        return chunked
    if name == "trees":
        return trees
    assert name in ("triton", "clouds")
    return import_module(f"setwise.kernels.triton.{'operations' if name == 'triton' else name}")


@torch.library.custom_op("setwise::logsumexp", mutates_args=())
def logsumexp(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    engine: str,
    record: bool,
    sharpness: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``logsumexp_j score_ij``: [B, M, F], [B, N, F], [B, N], [B, D] -> [B, M].

    A score is ``queries_i . keys_j + bias_j``; with a sharpness the first D features are compared
    instead, see `reference`.

    What comes with it is for `logsumexp_backward`: the logsumexp in the units of the engine, and by
    how much it was rounded, [B, 2, M]. To ``record`` also gives the peaks by which tiles are known
    that may be skipped; they are empty if not asked for, or where it does not pay. Engines that are
    `SORTING` give the orders of both sides instead.
    """
    peaks = None
    with no_autocast(queries):
        if engine in SORTING:
            return _engine(engine).logsumexp(queries, keys, bias, sharpness)
        if engine == "triton":
            lse, terms, peaks = _engine(engine).logsumexp(queries, keys, bias, sharpness, record)
        else:
            lse, rest = _engine(engine).logsumexp(queries, keys, bias, sharpness)
            terms = torch.stack([lse, rest], dim=1)
    return lse, terms, bias.new_empty(len(bias), 0, 0, 0) if peaks is None else peaks


@torch.library.custom_op("setwise::logsumexp_backward", mutates_args=())
def logsumexp_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    terms: Tensor,
    peaks: Tensor,
    need_queries: bool,
    need_keys: bool,
    engine: str,
    sharpness: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    lse, rest = terms.unbind(dim=1)
    operands, needs = (queries, keys, bias, sharpness), (need_queries, need_keys)
    with no_autocast(queries):
        if engine in SORTING:
            return _engine(engine).logsumexp_backward(grad, *operands, terms, peaks, *needs)
        if engine == "triton":
            seen = peaks if peaks.shape[1] else None
            return _engine(engine).logsumexp_backward(grad, *operands, lse, rest, seen, *needs)
        return _engine(engine).logsumexp_backward(grad, *operands, lse, rest, *needs)


@torch.library.custom_op("setwise::sharpness_gradient", mutates_args=())
def sharpness_gradient(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor,
    terms: Tensor,
    peaks: Tensor,
    engine: str,
) -> Tensor:
    """Wanted where a temperature is learned, and then by PyTorch code on any device."""
    operands = queries, keys, bias, sharpness
    with no_autocast(queries):
        if engine == "trees":
            return trees.sharpness_gradient(grad, *operands, terms, peaks)
        return chunked.sharpness_gradient(grad, *operands)


@torch.library.custom_op("setwise::logsumexp_double_backward", mutates_args=())
def logsumexp_double_backward(
    u: Tensor | None,
    v: Tensor | None,
    w: Tensor,
    h: Tensor | None,
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    operands = queries, keys, bias, sharpness
    with no_autocast(queries):
        return chunked.logsumexp_double_backward(u, v, w, h, grad, *operands)


@torch.library.custom_op("setwise::argmax", mutates_args=())
def argmax(
    queries: Tensor, keys: Tensor, bias: Tensor, engine: str, sharpness: Tensor | None = None
) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]; scores are those of `logsumexp`."""
    return _engine(engine).argmax(queries, keys, bias, sharpness)


@logsumexp.register_fake
def _(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    engine: str,
    record: bool,
    sharpness: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    (B, M, F), N = queries.shape, keys.shape[1]
    if engine in SORTING:
        size = M + N if engine == "clouds" else trees.orders_size(M, N)
        orders = queries.new_empty((B, size), dtype=torch.long)
        return bias.new_empty(B, M), bias.new_empty(B, 2, M), orders
    shape = None
    if engine == "triton" and record and sharpness is None:
        shape = _engine(engine).peaks_shape(B, M, N, F)
    return bias.new_empty(B, M), bias.new_empty(B, 2, M), bias.new_empty(shape or (B, 0, 0, 0))


@argmax.register_fake
def _(
    queries: Tensor, keys: Tensor, bias: Tensor, engine: str, sharpness: Tensor | None = None
) -> Tensor:
    return queries.new_empty(queries.shape[:2], dtype=torch.long)


@logsumexp_backward.register_fake
def _(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    terms: Tensor,
    peaks: Tensor,
    need_queries: bool,
    need_keys: bool,
    engine: str,
    sharpness: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    d_queries = queries.new_empty((queries if need_queries else queries[:, :0]).shape)
    d_keys = keys.new_empty((keys if need_keys else keys[:, :0]).shape)
    return d_queries, d_keys, bias.new_empty(bias.shape)


@sharpness_gradient.register_fake
def _(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor,
    terms: Tensor,
    peaks: Tensor,
    engine: str,
) -> Tensor:
    return sharpness.new_empty(sharpness.shape)


@logsumexp_double_backward.register_fake
def _(
    u: Tensor | None,
    v: Tensor | None,
    w: Tensor,
    h: Tensor | None,
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    a, b, c, d = (t.new_empty(t.shape) for t in (grad, queries, keys, bias))
    D = 0 if sharpness is None else sharpness.shape[1]
    return a, b, c, d, grad.new_empty(len(grad), D)


def differentiable_logsumexp(
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    engine: str,
    skip_negligible: bool,
    sharpness: Tensor | None = None,
) -> Tensor:
    """`logsumexp` with its derivatives; without a backward pass to come nothing is recorded."""
    tensors = queries, keys, bias
    # A mapped tensor does not tell whether it wants a gradient.
    mapped = torch._C._functorch.is_batchedtensor
    wanted = any(t.requires_grad for t in tensors) or any(mapped(t) for t in tensors)
    record = skip_negligible and torch.is_grad_enabled() and wanted
    lse, _, _ = LogSumExp.apply(queries, keys, bias, sharpness, engine, record)
    return lse


class LogSumExp(torch.autograd.Function):
    """The differentiable face of `logsumexp`; what it gives beside is for its backward pass alone.

    A Function rather than ``register_autograd``: only a Function with ``setup_context`` can be
    transformed by ``torch.func``.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        queries: Tensor,
        keys: Tensor,
        bias: Tensor,
        sharpness: Tensor | None,
        engine: str,
        record: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return logsumexp(queries, keys, bias, engine, record, sharpness)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.engine, _ = inputs
        ctx.save_for_backward(*tensors, *output[1:])
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # of what is not differentiable they would be zeros

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        needs = ctx.needs_input_grad[:4]
        found = LogSumExpBackward.apply(grad, *ctx.saved_tensors, *needs, ctx.engine)
        return (*(g if need else None for g, need in zip(found, needs, strict=True)), None, None)


class LogSumExpBackward(torch.autograd.Function):
    """The backward pass as a function of its own, so that it can be differentiated in turn."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor,
        queries: Tensor,
        keys: Tensor,
        bias: Tensor,
        sharpness: Tensor | None,
        terms: Tensor,
        peaks: Tensor,
        need_queries: bool,
        need_keys: bool,
        need_bias: bool,
        need_sharpness: bool,
        engine: str,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        operands = queries, keys, bias
        d_sharpness = grad.new_empty(len(grad), 0)
        if need_sharpness:
            assert sharpness is not None
            d_sharpness = sharpness_gradient(grad, *operands, sharpness, terms, peaks, engine)
        needs = need_queries, need_keys
        found = logsumexp_backward(grad, *operands, terms, peaks, *needs, engine, sharpness)
        return *found, d_sharpness

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, _terms, _peaks, ctx.need_queries, ctx.need_keys, _, ctx.need_sharpness, _ = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, u: Tensor, v: Tensor, w: Tensor, h: Tensor) -> tuple[Any, ...]:
        *found, d_sharpness = logsumexp_double_backward(
            u if ctx.need_queries else None,
            v if ctx.need_keys else None,
            w,
            h if ctx.need_sharpness else None,
            *ctx.saved_tensors,
        )
        has_sharpness = ctx.saved_tensors[4] is not None
        return *found, d_sharpness if has_sharpness else None, *(None,) * 7


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


for _op in (logsumexp, logsumexp_backward, sharpness_gradient, logsumexp_double_backward, argmax):
    _op.register_vmap(fold_mapped_dimension(_op))
