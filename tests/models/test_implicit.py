"""The decoder that is an optimisation: it is one, and its gradient that of the minimum."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from setwise.models import ImplicitDecoder
from small_models import gradients, seeded


def small_decoder(**options: float) -> ImplicitDecoder:
    torch.manual_seed(0)
    small = {"features": 4, "latent": 8, "seeds": 2, "heads": 2}
    return ImplicitDecoder(4, 3, **small, **options).double()  # type: ignore[arg-type]


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
    """Of a strong pull the first few do: from then on energies are the same but for rounding."""
    memory = torch.randn(5, 6, 4, generator=seeded(1)).double()
    for pull in (0.1, 100.0):
        energies = []
        for steps in (0, 5, 20, 300):
            decoder = small_decoder(steps=steps, pull=pull)
            target = decoder.target(decoder.pool(memory).flatten(-2))
            with torch.no_grad():
                found = decoder(memory)
                energies.append(energy(decoder, found, target).sum().item())
        assert energies[0] > energies[1]
        for earlier, later in pairwise(energies):
            assert later <= earlier * (1 + 1e-14)
    assert decoder.slope(found, target).abs().max() < 1e-6


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_steps_are_as_long_as_the_curvature_allows(scale: float) -> None:
    """Whatever the weights are, what is measured is the largest eigenvalue of the Hessian."""
    decoder = small_decoder(pull=0.0)
    with torch.no_grad():
        for weight in decoder.encoder.parameters():
            weight.mul_(scale)
    target = torch.randn(8, generator=seeded(2)).double()
    first = decoder.first.detach()
    hessian = torch.autograd.functional.hessian(lambda y: energy(decoder, y, target), first)
    exact = torch.linalg.matrix_norm(hessian.reshape(12, 12), 2)
    measured = decoder.encoder.curvature(first)
    assert 0.9 * exact <= measured <= (1 + 1e-9) * exact


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_no_step_is_longer_than_ten(scale: float) -> None:
    """Where the way is far steeper than at first, sets are still not thrown away."""
    decoder = small_decoder(steps=5, differentiated=2)
    decoder.encoder.curvature = lambda elements: torch.tensor(1e-3)  # type: ignore[method-assign]
    memory = scale * torch.randn(6, 7, 4, generator=seeded(1)).double()
    found = decoder(memory)
    # Momentum adds up nine tenths of each velocity to the next.
    velocities = [sum(0.9**k for k in range(step)) for step in range(1, 6)]
    assert ((found - decoder.first).norm(dim=(-2, -1)) <= 10 * (sum(velocities) + 2)).all()
    assert all(gradient.isfinite().all() for gradient in gradients(decoder, found))


def test_no_curvature_at_first_is_no_nan() -> None:
    """Where no unit is active and nothing pulls, elements stay where they are."""
    decoder = small_decoder(pull=0.0)
    nn.init.constant_(decoder.encoder.lower.bias, -100.0)
    found = decoder(torch.randn(2, 6, 4, generator=seeded(1)).double())
    assert found.equal(decoder.first.expand(2, 3, 4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_do_not_change_the_descent(dtype: torch.dtype) -> None:
    """Of the same vector, and with the same weights, it gives what it gives in 64 bits."""
    vectors = torch.randn(5, 8, generator=seeded(2)).to(dtype)
    memory = torch.zeros(5, 1, 4)
    narrow = small_decoder().to(dtype)
    mixed = small_decoder().float()
    for decoder in (narrow, mixed):
        wide = copy.deepcopy(decoder).double()
        for one, given in ((decoder, vectors), (wide, vectors.double())):
            one.pool, one.target = Given(given), nn.Identity()  # type: ignore[assignment]
        with torch.autocast("cpu", dtype=dtype, enabled=decoder is mixed):
            found = decoder(memory.to(decoder.first.dtype))
        assert found.dtype == dtype
        expected = wide(memory.double())
        torch.testing.assert_close(
            found.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-4
        )


class Given(nn.Module):
    """A vector in place of what is read."""

    def __init__(self, target: Tensor) -> None:
        super().__init__()
        self.given = target

    def forward(self, memory: Tensor, valid: Tensor | None) -> Tensor:
        return self.given.unsqueeze(-2)


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


@pytest.mark.slow
def test_the_descent_is_compiled_as_one_graph() -> None:
    decoder = small_decoder(steps=2, differentiated=2)
    memory = torch.randn(4, 6, 4, generator=seeded(1)).double()
    expected = decoder(memory)
    found = torch.compile(decoder, backend="aot_eager", fullgraph=True)(memory)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(decoder, found), gradients(decoder, expected))


@pytest.mark.slow
def test_all_of_it_learns() -> None:
    """To give back pairs of points, by way of a vector that it makes of them itself."""
    torch.manual_seed(0)
    decoder = ImplicitDecoder(8, 2, features=2, latent=32, seeds=4, steps=10, heads=2)
    model = nn.Sequential(nn.Linear(2, 8), decoder)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(200):
        sets = torch.rand(64, 2, 2)
        found = model(sets)
        either = torch.stack([found - sets, found - sets.flip(1)]).square().sum((-2, -1))
        error = either.amin(0).mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
    # The best that knows nothing of the points, two places that lie apart, comes to 0.27.
    assert error < 0.14
