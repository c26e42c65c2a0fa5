"""Sums over all matchings as PyTorch operators: their value, probabilities, and second derivatives.

Legend: B sets, M targets, N outputs.

A matching gives every valid target a valid output of its own. Its weight is the product of
``exp(scores_ij)`` over its pairs and of ``exp(odds_j)`` over the outputs that it uses. The gradient
of the logarithm of their sum is the probability of each pair, and of each output's being used; so
the solvers compute these beside the value, and no graph is stored.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from setwise.kernels.autocast import no_autocast
from setwise.kernels.bethe import bethe, bethe_second
from setwise.kernels.dispatch import fused
from setwise.kernels.host_bethe import bethe_on_host
from setwise.kernels.host_permanent import log_permanent_on_host
from setwise.kernels.operators import fold_mapped_dimension
from setwise.kernels.permanent import log_permanent, log_permanent_and_marginals
from setwise.kernels.transforms import is_eager


def _sum_matchings(
    scores: Tensor,
    odds: Tensor,
    exclusivity: Tensor | None,
    rows: Tensor,
    columns: Tensor,
    method: str,
    record: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """[B, M, N], [B, N], [B], [B, M], [B, N] -> log of the sum [B] and, to ``record``, the rest.

    That is the probability of each pair [B, M, N] and of an output's use [B, N]; whether the set
    has settled [B]; and the messages by which it did [B, M, N], or [B, 0, 0] if there are none.
    """
    on_host = scores.device.type == "cpu" and scores.numel() > 0
    # Compilers and transforms let infinities through, with which plain numbers go wrong.
    on_host = on_host and bool(scores.isfinite().all()) and bool(odds.isfinite().all())
    with no_autocast(scores):
        if method == "bethe":
            kernels = fused("bethe", scores)
            if kernels is not None:
                return kernels.bethe(scores, odds, exclusivity, (rows, columns))
            solve = bethe_on_host if on_host else bethe
            return solve(scores, odds, exclusivity, rows, columns)
        kernels = fused("subset_sums", scores)
        if kernels is not None and kernels.fits(*scores.shape[1:]):
            value, pairs, used = kernels.log_sum(scores, odds, (rows, columns), record)
        else:
            add_up = log_permanent_on_host if on_host else log_permanent
            value, pairs = add_up(scores + odds.unsqueeze(1), rows, columns, record)
            used = pairs.sum(1)
        settled = torch.ones_like(value, dtype=torch.bool)
        return value, pairs, used, settled, scores.new_empty(len(scores), 0, 0)


sum_matchings = torch.library.custom_op("setwise::sum_matchings", _sum_matchings, mutates_args=())


@sum_matchings.register_fake
def _(
    scores: Tensor,
    odds: Tensor,
    exclusivity: Tensor | None,
    rows: Tensor,
    columns: Tensor,
    method: str,
    record: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    B, M, N = scores.shape
    exact = method == "exact"
    return (
        scores.new_empty(B),
        scores.new_empty(B, 0 if exact and not record else M, N),
        scores.new_empty(B, N),
        scores.new_empty(B, dtype=torch.bool),
        scores.new_empty((B, 0, 0) if exact else (B, M, N)),
    )


sum_matchings.register_vmap(fold_mapped_dimension(sum_matchings))


def log_sum_of_matchings(
    scores: Tensor,
    odds: Tensor,
    exclusivity: Tensor | None,
    rows: Tensor,
    columns: Tensor,
    method: str,
) -> tuple[Tensor, Tensor]:
    """The log of the sum [B], differentiable twice, and which sets have settled [B]."""
    mapped = torch._C._functorch.is_batchedtensor  # which do not tell whether they want a gradient
    wanted = any(t.requires_grad or mapped(t) for t in (scores, odds))
    record = torch.is_grad_enabled() and wanted
    value, _, _, settled, _ = LogSum.apply(scores, odds, exclusivity, rows, columns, method, record)
    return value, settled


def matching_probabilities(
    scores: Tensor,
    odds: Tensor,
    exclusivity: Tensor | None,
    rows: Tensor,
    columns: Tensor,
    method: str,
) -> tuple[Tensor, Tensor]:
    """The probability of each pair [B, M, N] and of each output's use [B, N]; differentiable."""
    problem = (scores, odds, exclusivity, rows, columns)
    with torch.no_grad():
        _, pairs, used, _, answers = sum_matchings(*problem, method, True)
    ones = scores.new_ones(len(scores))
    return Probabilities.apply(ones, *problem, pairs, used, answers, method)


class LogSum(torch.autograd.Function):
    """The differentiable face of `sum_matchings`; all but the first result are for its backward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        scores: Tensor,
        odds: Tensor,
        exclusivity: Tensor | None,
        rows: Tensor,
        columns: Tensor,
        method: str,
        record: bool,
    ) -> tuple[Tensor, ...]:
        # An operator costs the host more than a kernel costs the device.
        operator = _sum_matchings if is_eager() else sum_matchings
        return operator(scores, odds, exclusivity, rows, columns, method, record)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *problem, ctx.method, _ = inputs
        _, pairs, used, settled, answers = output
        ctx.save_for_backward(*problem, pairs, used, answers)
        ctx.mark_non_differentiable(pairs, used, settled, answers)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        nothing = (None,) * 5
        if grad is None:
            return None, None, *nothing
        d_scores, d_odds = Probabilities.apply(grad, *ctx.saved_tensors, ctx.method)
        return d_scores, d_odds, *nothing


class Probabilities(torch.autograd.Function):
    """The probabilities times ``grad`` [B]: the backward pass, to be differentiated in turn."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        grad: Tensor,
        scores: Tensor,
        odds: Tensor,
        exclusivity: Tensor | None,
        rows: Tensor,
        columns: Tensor,
        pairs: Tensor,
        used: Tensor,
        answers: Tensor,
        method: str,
    ) -> tuple[Tensor, Tensor]:
        return grad[:, None, None] * pairs, grad[:, None] * used

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        *tensors, ctx.method = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, u: Tensor, v: Tensor) -> tuple[Tensor | None, ...]:
        grad, *rest = ctx.saved_tensors
        scores, odds, exclusivity, rows, columns, _, _, answers = rest
        pairs, used = Probabilities.apply(torch.ones_like(grad), *rest, ctx.method)
        d_grad = (u * pairs).sum((1, 2)) + (v * used).sum(1)
        u, v = grad[:, None, None] * u, grad[:, None] * v
        with no_autocast(scores):
            if ctx.method == "bethe":
                d_scores, d_odds = bethe_second(
                    answers, (scores, odds), (u, v), exclusivity, rows, columns
                )
            else:
                back = torch.func.vjp(
                    lambda s: log_permanent_and_marginals(s, rows, columns)[1],
                    scores + odds.unsqueeze(1),
                )[1]
                (d_scores,) = back(u + v.unsqueeze(1))
                d_odds = d_scores.sum(1)
        return d_grad, d_scores, d_odds, *(None,) * 7
