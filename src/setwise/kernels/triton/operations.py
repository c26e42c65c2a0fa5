"""The Triton engine: kernels as functions of tensors, without autograd, as in `chunked`.

Legend: B sets, M queries, N keys, F features. A score is ``queries_i . keys_j + bias_j``; with a
``sharpness`` [B, D] the first D features are compared instead: by the kernels for points, or if
there are more features by those of `compared`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from setwise.kernels import matmul_precision
from setwise.kernels.triton import compared, engine, points
from setwise.kernels.triton.memory import floats
from setwise.kernels.triton.operands import prepare_operands
from setwise.kernels.triton.skipping import peaks_shape

__all__ = ["argmax", "logsumexp", "logsumexp_backward", "peaks_shape"]


def logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None, record: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """``logsumexp_j score_ij`` in float32, shape [B, M], and its terms for the backward pass.

    Those, [B, 2, M], are the logsumexp, of points in bits, and what was lost when it was rounded.

    To ``record`` also gives, where it pays to skip tiles in the backward pass, the peaks that
    `skipping` knows them by.
    """
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    if sharpness is not None:
        sharpness = sharpness.contiguous()
        if queries.shape[2] > points.MAX_FEATURES:
            return *compared.logsumexp(queries, keys, bias, sharpness), None
    precision = matmul_precision.dot_precision(queries.dtype)
    operands = prepare_operands(queries, keys, precision, rows_are_keys=False)
    terms = floats(queries.device, len(queries), 2, queries.shape[1])
    lse, peaks, _ = engine.logsumexp_loop(
        queries, keys, bias, record, precision, operands, terms=terms, sharpness=sharpness
    )
    return lse, terms, peaks


def logsumexp_backward(
    grad: Tensor,
    queries: Tensor,
    keys: Tensor,
    bias: Tensor,
    sharpness: Tensor | None,
    lse: Tensor,
    rest: Tensor,
    peaks: Tensor | None,
    need_queries: bool,
    need_keys: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to queries, keys and bias; what is not needed comes back without elements.

    The lse and the rest are the terms of `logsumexp`. Weights are relative to the first; to be so
    to both, they are multiplied by a number for each query, which is part of its gradient.
    """
    grad, queries, keys, bias = (t.contiguous() for t in (grad, queries, keys, bias))
    lse = lse.masked_fill(lse == -math.inf, math.inf)  # see `weights.lse_for_backward`
    few = queries.shape[2] <= points.MAX_FEATURES
    incoming = grad * (torch.exp2(-rest) if few else torch.exp(-rest))
    sharpness = None if sharpness is None else sharpness.contiguous()

    def of_rows(
        rows: Tensor, columns: Tensor, row_term: Tensor, column_term: Tensor, rows_are_keys: bool
    ) -> tuple[Tensor, Tensor]:
        elements = rows, columns, row_term, column_term
        if sharpness is not None and not few:
            return compared.gradients(*elements, rows_are_keys, incoming, sharpness)
        # Of more than points, the weights of a query that is a row are divided by their sum.
        weight = incoming if few or rows_are_keys else grad
        return engine.gradients(
            *elements, (None, 0, 1.0), rows_are_keys=rows_are_keys, weight=weight, peaks=peaks,
            termed=few, sharpness=sharpness,
        )  # fmt: skip

    # The gradient of the bias comes from the same loop as that of the keys, and is always wanted.
    d_keys, d_bias = of_rows(keys, queries, bias, lse, True)
    d_queries = queries[:, :0].clone()
    if need_queries:
        d_queries, _ = of_rows(queries, keys, lse, bias, False)
    return d_queries, d_keys if need_keys else keys[:, :0].clone(), d_bias


def argmax(queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor | None = None) -> Tensor:
    """``argmax_j score_ij``, shape [B, M]."""
    queries, keys, bias = queries.contiguous(), keys.contiguous(), bias.contiguous()
    if sharpness is not None:
        sharpness = sharpness.contiguous()
        if queries.shape[2] > points.MAX_FEATURES:
            return compared.argmax(queries, keys, bias, sharpness)
    precision = matmul_precision.dot_precision(queries.dtype)
    operands = prepare_operands(queries, keys, precision, rows_are_keys=False)
    return engine.argmax(queries, keys, bias, operands, precision, sharpness)
