"""Clouds of points on a CUDA device, through the compiled kernels."""

from __future__ import annotations

import pytest
import torch

import setwise as sw
from clouds import KINDS, judge_argmax, judge_logsumexp, operands, points
from setwise.kernels import clouds as shapes
from setwise.kernels.triton import clouds

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

POINTS = sw.Features(sw.Gaussian(3, scale=0.01))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator("cuda").manual_seed(seed)


@pytest.mark.parametrize("F", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_as_all_pairs(kind: str, F: int) -> None:
    """Four clouds of each kind: fewer than a block, some blocks, some parents."""
    for M, N in ((3, 50), (130, 700), (3000, 2500), (2049, 4100)):
        generator = seeded(F * M)
        queries, keys, bias, sharpness = operands(kind, M, N, F, generator, B=1 + M % 2)
        if kind == "grid":
            bias, sharpness = bias.masked_fill(bias > 0, 0.0), torch.ones_like(sharpness)
        judge_argmax(queries, keys, bias, sharpness, same=F <= 4 or kind == "grid")
        grad = torch.randn(queries.shape[:2], generator=generator, device="cuda")
        judge_logsumexp(queries, keys, bias, sharpness, grad)


@pytest.mark.parametrize("kind", KINDS)
def test_several_groups_of_parents(kind: str) -> None:
    """A group has 65,536 points."""
    generator = seeded(7)
    queries, keys, bias, sharpness = operands(kind, 2000, 150_000, 3, generator)
    judge_argmax(queries, keys, bias, sharpness, same=True)
    judge_argmax(keys, queries, bias[:, :2000], sharpness, same=True)
    judge_logsumexp(queries, keys, bias, sharpness, torch.ones(1, 2000, device="cuda"))


def test_same_bits_every_time() -> None:
    operand = operands("surface", 20_000, 30_000, 3, seeded(0), B=2)
    grad = torch.randn(2, 20_000, generator=seeded(1), device="cuda")
    found = []
    for _ in range(3):
        lse, terms, orders = clouds.logsumexp(*operand)
        slopes = clouds.logsumexp_backward(grad, *operand, terms, orders, True, True)
        found.append([lse, *slopes, clouds.argmax(*operand)])
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


@pytest.mark.parametrize("kind", ["surface", "uniform", "clusters"])
def test_losses_of_large_sets(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the same losses with all pairs; memory grows with the points."""
    n = 100_000
    x, y = (points(kind, (1, n, 3), seeded(seed)).requires_grad_() for seed in (0, 1))
    lengths = {"input_valid": torch.tensor([n - 5], device="cuda")}
    found = []
    for pairs in (1, 2**62):
        monkeypatch.setattr(shapes, "FEWEST_PAIRS", pairs)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        values = [
            sw.set_cross_entropy(y, x, POINTS, **lengths),
            sw.chamfer(y, x, **lengths),
            sw.hausdorff(y, x, POINTS, directed=False, **lengths),
        ]
        found.append([t.detach() for v in values for t in (v, *torch.autograd.grad(v, (y, x)))])
        assert torch.cuda.max_memory_allocated() - before < 1000 * n
    for ours, theirs in zip(*found, strict=True):
        assert (ours - theirs).abs().max() <= 2e-5 * theirs.abs().max()


def test_the_host_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "FEWEST_PAIRS", 1)
    x, y = (points("surface", (1, 100_000, 3), seeded(seed)) for seed in (0, 1))
    torch.cuda.set_sync_debug_mode("error")
    try:
        losses = [sw.set_cross_entropy(y, x, POINTS), sw.chamfer(y, x)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(loss.isfinite() for loss in losses)


def test_few_blocks_are_searched_and_all_where_none_is_nearer() -> None:
    bias, sharpness = torch.zeros(1, 50_000, device="cuda"), torch.ones(1, 3, device="cuda")
    shares = {}
    for kind, (of_queries, of_keys) in KINDS.items():
        x, y = (points(k, (1, 50_000, 3), seeded(3)) for k in (of_queries, of_keys))
        x_order, y_order, start = clouds._orders(x, y, bias, sharpness)
        rows, columns = clouds._cloud(x, x_order), clouds._cloud(y, y_order, bias)
        kept = clouds._count(rows, columns, sharpness, 0.0, False, start)
        shares[kind] = kept.float().mean().item() / columns.blocks
    assert max(shares[kind] for kind in ("uniform", "surface", "clusters", "line")) < 0.1
    assert shares["all around"] > 0.9
