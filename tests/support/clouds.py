"""Clouds of points of all kinds, and what the engine for them says beside all pairs."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.testing import assert_close

from setwise.kernels import reference
from setwise.kernels.triton import clouds, operations

# Queries and keys; of the last two, where the sharpness of features is the same, no pair is nearer.
KINDS = {
    "uniform": ("uniform", "uniform"),
    "surface": ("surface", "surface"),
    "clusters": ("clusters", "clusters"),
    "grid": ("grid", "grid"),
    "line": ("line", "line"),
    "outliers": ("outliers", "outliers"),
    "far away": ("far away", "far away"),
    "unlike": ("uniform", "clusters"),
    "all around": ("centre", "surface"),
    "all in one": ("surface", "centre"),
}


def points(kind: str, shape: tuple[int, int, int], generator: torch.Generator) -> Tensor:
    """[B, n, F] of them."""
    B, n, F = shape
    device = generator.device

    def uniform(*size: int) -> Tensor:
        return torch.rand(size, generator=generator, device=device)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, device=device)

    if kind == "surface":
        return torch.nn.functional.normalize(normal(B, n, F), dim=-1)
    if kind == "clusters":
        which = torch.randint(20, (B, n, 1), generator=generator, device=device)
        return uniform(B, 20, F).gather(1, which.expand(-1, -1, F)) + 1e-3 * normal(B, n, F)
    if kind == "grid":  # many are equal, and many others equally far
        return torch.randint(4, shape, generator=generator, device=device).float()
    if kind == "line":
        return uniform(B, n, 1).repeat(1, 1, F)
    if kind == "centre":
        return 1e-6 * normal(B, n, F)
    apart = uniform(B, n, F)
    if kind == "outliers":
        apart[:, ::7] += 30 * normal(B, (n + 6) // 7, F)
    return apart + 1e4 if kind == "far away" else apart


def operands(
    kind: str, M: int, N: int, F: int, generator: torch.Generator, B: int = 1
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, a bias by which some are masked and all differ, and a sharpness."""
    of_queries, of_keys = KINDS[kind]
    device = generator.device
    queries = points(of_queries, (B, M, F), generator)
    keys = points(of_keys, (B, N, F), generator)
    bias = torch.rand(B, N, generator=generator, device=device)
    masked = torch.rand(B, N, generator=generator, device=device) < 0.2
    masked[:, 0] = False
    # Where all are far from each other, scores that are larger round by more than they differ.
    most = 1.0 if set(KINDS[kind]) & {"centre", "outliers"} else 3.5
    sharpness = 10 ** (most * torch.rand(B, F, generator=generator, device=device))
    return queries, keys, bias.masked_fill(masked, -math.inf), sharpness


def judge_argmax(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor, same: bool
) -> Tensor:
    """The first of the best, the ``same`` as by the other kernels, or up to rounding."""
    found = clouds.argmax(queries, keys, bias, sharpness)
    if same:
        assert torch.equal(found, operations.argmax(queries, keys, bias, sharpness))
    exact = reference.scores(*(t.double() for t in (queries, keys, bias, sharpness)))
    chosen = exact.gather(2, found.unsqueeze(2)).squeeze(2)
    assert_close(chosen, exact.amax(dim=2), rtol=3e-6, atol=3e-6)
    return found


def judge_logsumexp(
    queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor, grad: Tensor
) -> list[Tensor]:
    """It and its gradients beside dense float64, as near as those of dense float32.

    How scores are rounded is a matter of luck, in which dense sums differ by some times from those
    over the same features in another order. All orders that begin elsewhere are equally good. An
    error counts by the size of what is added up, of which little may be left: a point amidst all
    others is drawn to every side.
    """
    operands = queries, keys, bias, sharpness
    lse, terms, orders = clouds.logsumexp(*operands)
    ours = [lse, *clouds.logsumexp_backward(grad, *operands, terms, orders, True, True)]
    precise = [t.double() for t in operands]
    exact, sizes = _dense(0, grad, *precise), _added_up(grad, *precise)
    rounded = [_dense(first, grad, *operands) for first in range(queries.shape[2])]
    for found, right, size, *others in zip(ours, exact, sizes, *rounded, strict=True):
        scale = size.max() + 1e-30
        error, *allowed = ((t.double() - right).abs().max() / scale for t in (found, *others))
        assert error <= max(allowed) + 1e-5
    return ours


def _dense(
    first: int, grad: Tensor, queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor
) -> list[Tensor]:
    """The logsumexp and its gradients, one feature after the other from the first one on."""
    leaves = [t.clone().requires_grad_() for t in (queries, keys, bias)]
    x, y, scores = leaves[0], leaves[1], leaves[2].unsqueeze(1)
    for f in torch.arange(x.shape[2]).roll(-first).tolist():
        apart = x[:, :, None, f] - y[:, None, :, f]
        scores = scores - sharpness[:, f, None, None] * apart.square()
    lse = scores.logsumexp(dim=-1)
    return [lse.detach(), *torch.autograd.grad((lse * grad).sum(), leaves)]


def _added_up(
    grad: Tensor, queries: Tensor, keys: Tensor, bias: Tensor, sharpness: Tensor
) -> list[Tensor]:
    """What `_dense` gives if nothing that is added up had a sign; the logsumexp is no such sum."""
    scores = reference.scores(queries, keys, bias, sharpness)
    weights = scores.softmax(dim=-1) * grad.double().abs().unsqueeze(-1)
    pulls = [
        2 * sharpness[:, f, None, None] * (queries[:, :, None, f] - keys[:, None, :, f]).abs()
        for f in range(queries.shape[2])
    ]
    of_queries, of_keys = (
        torch.stack([(weights * pull).sum(dim=dim) for pull in pulls], dim=-1) for dim in (2, 1)
    )
    return [scores.logsumexp(dim=-1).abs(), of_queries, of_keys, weights.sum(dim=1)]
