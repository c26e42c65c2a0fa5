"""The decoder that is an optimisation: it is one, and its gradient that of the minimum."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from setwise.models import ImplicitDecoder
from setwise.models.implicit import _largest
from small_models import seeded


def small_decoder(**options: float) -> ImplicitDecoder:
    torch.manual_seed(0)
    return ImplicitDecoder(4, size=3, heads=2, **options).double()  # type: ignore[arg-type]


def energy(decoder: ImplicitDecoder, elements: Tensor, target: Tensor) -> Tensor:
    encoded = decoder.encoder.upper(decoder.encoder.lower(elements).relu())
    pooled = (encoded.sort(dim=-2).values * decoder.encoder.by_rank).sum(dim=-2)
    far = (elements - decoder.first).square().sum((-2, -1))
    return (pooled - target).square().sum(-1) / 2 + decoder.pull * far / 2


def test_the_slope_is_that_of_what_is_minimised() -> None:
    decoder = small_decoder()
    elements = torch.randn(5, 3, 4, generator=seeded(1)).double().requires_grad_()
    target = torch.randn(5, 8, generator=seeded(2)).double()
    expected = torch.autograd.grad(energy(decoder, elements, target).sum(), elements)[0]
    torch.testing.assert_close(decoder.slope(elements, target), expected)


def test_steps_lead_to_the_minimum() -> None:
    """Strictly so near the first elements, where no ranks change."""
    memory = torch.randn(5, 6, 4, generator=seeded(1)).double()
    for pull in (0.1, 100.0):
        energies = []
        for steps in (0, 5, 20, 300):
            decoder = small_decoder(steps=steps, pull=pull)
            target = decoder.target(decoder.pool(memory)).squeeze(-2)
            with torch.no_grad():
                found = decoder(memory)
                energies.append(energy(decoder, found, target).sum())
        assert energies == sorted(energies, reverse=True)
    assert decoder.slope(found, target).abs().max() < 1e-6


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_no_step_is_too_long(scale: float) -> None:
    """Whatever the weights are, the bound of the curvature is one, and not far too high."""
    decoder = small_decoder()
    with torch.no_grad():
        for weight in decoder.encoder.parameters():
            weight.mul_(scale)
    for layer in (decoder.encoder.lower, decoder.encoder.upper):
        largest = torch.linalg.matrix_norm(layer.weight, 2) ** 2
        assert largest <= _largest(layer.weight) <= 8 ** (1 / 8) * largest
    target = torch.randn(8, generator=seeded(2)).double()
    elements = torch.randn(3, 4, generator=seeded(1)).double()
    hessian = torch.autograd.functional.hessian(lambda y: energy(decoder, y, target), elements)
    curvature = torch.linalg.matrix_norm(hessian.reshape(12, 12), 2)
    assert curvature <= decoder.encoder.steepness() + decoder.pull


class Given(nn.Module):
    """A vector in place of what is read."""

    def __init__(self, target: Tensor) -> None:
        super().__init__()
        self.given = target

    def forward(self, memory: Tensor, valid: Tensor | None) -> Tensor:
        return self.given.unsqueeze(0)


def test_many_terms_are_the_exact_derivative_of_the_minimum() -> None:
    """By the implicit function theorem: minus the inverse Hessian times the mixed derivative."""
    target = torch.randn(8, generator=seeded(2)).double().requires_grad_()
    weight = torch.randn(3, 4, generator=seeded(3)).double()
    given = {}
    for terms in (1, 300):
        decoder = small_decoder(steps=300, differentiated=terms, pull=10.0)
        decoder.pool, decoder.target = Given(target), nn.Identity()  # type: ignore[assignment]
        found = decoder(torch.zeros(1, 4).double())
        given[terms] = torch.autograd.grad((found * weight).sum(), [target, decoder.first])
    minimum = found.detach()
    hessian = torch.autograd.functional.hessian(
        lambda y: energy(decoder, y, target.detach()), minimum
    ).reshape(12, 12)
    adjoint = torch.linalg.solve(hessian, weight.flatten()).reshape(3, 4)
    slope = decoder.slope(minimum, target)
    exact = torch.autograd.grad(-(slope * adjoint).sum(), [target, decoder.first])
    for one, other in zip(given[300], exact, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
    # A single term points the same way.
    assert torch.cosine_similarity(given[1][0], exact[0], dim=0) > 0.9


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_do_not_lengthen_the_steps(dtype: torch.dtype) -> None:
    """Powers of 16 bits would vanish, and the bound of the curvature with them."""
    torch.manual_seed(0)
    decoder = ImplicitDecoder(64, size=3)
    expected = decoder.encoder.steepness()
    with torch.autocast("cpu", dtype=dtype):
        assert decoder.encoder.steepness().equal(expected)
    torch.testing.assert_close(decoder.to(dtype).encoder.steepness(), expected, rtol=0.02, atol=0.0)
