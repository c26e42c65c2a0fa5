"""What the loops of a step hand on, compiled: anchors of points, and a logsumexp in bits."""

from __future__ import annotations

import pytest
import torch

import setwise as sw
from pairwise import agree

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("ahead", [0.0, 50.0, 100.0, 300.0])
@pytest.mark.parametrize("N", [500, 512])
def test_a_point_far_ahead(N: int, ahead: float) -> None:
    """Of the keys that are looked at first, by more than float32 has smem for."""
    generator = torch.Generator("cuda").manual_seed(0)
    shapes = [(2, 70, 3), (2, N, 3), (2, N)]
    leaves = [torch.rand(shape, generator=generator, device="cuda") for shape in shapes]
    leaves[2][1, 1] += ahead
    agree(leaves)


@pytest.mark.parametrize("precision", ["highest", "medium"])
@pytest.mark.parametrize("F", [64, 128, 256, 300])
@pytest.mark.parametrize("best", [-20_000.0, -60_000.0])
def test_the_only_output_that_matters_has_a_weight_of_one(
    best: float, F: int, precision: str
) -> None:
    """However unlikely it is, beyond 2^24 bits too: scores are rounded alike in both passes."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    logits = torch.full((1, 700, F), -65_000.0, device="cuda")
    logits[0, 7] = best
    logits.requires_grad_()
    loss = sw.set_cross_entropy(logits, torch.ones(1, 800, F, device="cuda"), impl="triton")
    (gradient,) = torch.autograd.grad(loss, logits)
    torch.set_float32_matmul_precision(before)
    expected = torch.zeros(1, 700, F, device="cuda")
    expected[0, 7] = -800.0
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("F", [3, 8])
def test_a_loss_of_many_parts(F: int) -> None:
    """Of more than the kernel of the gradient adds up at once."""
    generator = torch.Generator("cuda").manual_seed(F)
    x = torch.randint(0, 2, (600, 65, F), generator=generator, device="cuda").float()
    z = torch.randn(600, 66, F, generator=generator, device="cuda", requires_grad=True)
    exact = sw.set_cross_entropy(z.detach().double(), x.double(), impl="reference")
    losses = [sw.set_cross_entropy(z, x).detach() for _ in range(3)]
    assert losses[0] == losses[1] == losses[2]
    torch.testing.assert_close(losses[0].double(), exact, rtol=1e-6, atol=0.0)
