"""Latent variables: distributions, temperatures, codes, and gradients at the extremes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from setwise.models import (
    BinaryConcrete,
    GumbelSoftmax,
    annealed_temperature,
)
from small_models import Latent, seeded


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("categories", [2, 5])
def test_gumbel_samples_choose_by_softmax(categories: int, temperature: float) -> None:
    torch.manual_seed(0)
    draws, latent = 40_000, GumbelSoftmax(3, categories)
    logits = torch.randn(3 * categories, generator=seeded(1))
    sample = latent(logits.expand(draws, -1), temperature).unflatten(-1, (3, categories))
    torch.testing.assert_close(sample.sum(-1), torch.ones(draws, 3))
    seen = nn.functional.one_hot(sample.argmax(-1), categories).double().mean(0)
    p = logits.unflatten(-1, (3, categories)).double().softmax(-1)
    assert ((seen - p).abs() < 5 * (p * (1 - p) / draws).sqrt()).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 5.0])
def test_concrete_samples_choose_by_sigmoid(temperature: float) -> None:
    torch.manual_seed(0)
    draws, logits = 40_000, torch.tensor([-2.0, -0.3, 0.0, 1.0])
    sample = BinaryConcrete(4)(logits.expand(draws, -1), temperature)
    p = logits.double().sigmoid()
    seen = (sample > 0.5).double().mean(0)
    assert ((seen - p).abs() < 5 * (p * (1 - p) / draws).sqrt()).all()


def test_both_kinds_of_binary_variable_have_one_distribution() -> None:
    """Quantiles of the whole relaxed value, not only of the choice; equal logit differences."""
    torch.manual_seed(0)
    draws, logits = 200_000, torch.tensor([-1.0, 0.5])
    concrete = BinaryConcrete(2)(logits.expand(draws, -1), 0.8)
    pairs = torch.stack([torch.zeros(2), logits], -1).flatten()
    gumbel = GumbelSoftmax(2)(pairs.expand(draws, -1), 0.8)[:, 1::2]
    shares = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    torch.testing.assert_close(
        concrete.quantile(shares, 0), gumbel.quantile(shares, 0), rtol=0, atol=0.01
    )


@pytest.mark.parametrize("latent", [GumbelSoftmax(6, 3), BinaryConcrete(18)], ids=repr)
def test_the_temperature_hardens_the_choice(latent: Latent) -> None:
    logits = torch.randn(500, latent.width, generator=seeded(0))

    def softness(temperature: float | Tensor) -> Tensor:
        torch.manual_seed(1)
        relaxed = latent(logits, temperature)
        return torch.minimum(relaxed, 1 - relaxed).mean()

    assert softness(1e-3) < 1e-3 < 0.05 < softness(1.0) < softness(5.0)
    assert softness(0.7) == softness(torch.tensor(0.7))


@pytest.mark.parametrize("latent", [GumbelSoftmax(6), BinaryConcrete(6)], ids=repr)
def test_evaluation_is_exact_and_codes_name_it(latent: Latent) -> None:
    logits = torch.randn(2, 50, latent.width, generator=seeded(0))
    logits[0, 0] = 0.0  # ties too
    assert not latent.train()(logits, 1.0).equal(latent(logits, 1.0))
    latent.eval()
    exact = latent(logits, 1.0)
    assert exact.equal(latent(logits, 0.1))
    assert exact.unique().tolist() == [0.0, 1.0]
    codes = latent.codes(logits)
    assert codes.shape == (2, 50, 6)
    assert codes.dtype == torch.bool
    assert latent.from_codes(codes).equal(exact)
    assert latent.train().codes(logits).equal(codes)
    # A code is what its own activation, read as logits, is chosen to be.
    assert latent.codes(latent.from_codes(codes) - 0.5).equal(codes)


def test_codes_follow_the_logits() -> None:
    assert BinaryConcrete(3).codes(torch.tensor([0.1, 0.0, -3.0])).tolist() == [True, False, False]
    pairs = torch.tensor([0.1, 0.2, 0.0, 0.0, 5.0, -3.0])
    assert GumbelSoftmax(3).codes(pairs).tolist() == [True, False, False]
    hard = GumbelSoftmax(2, 3).eval()(torch.tensor([0.1, 0.2, 0.3, 2.0, -1.0, 1.9]), 1.0)
    assert hard.tolist() == [0, 0, 1, 1, 0, 0]


def test_without_noise_the_relaxation_is_deterministic() -> None:
    logits = torch.randn(7, 6, generator=seeded(0))
    gumbel, concrete = GumbelSoftmax(2, 3, noise=False), BinaryConcrete(6, noise=False)
    expected = (logits.unflatten(-1, (2, 3)) / 0.5).softmax(-1).flatten(-2)
    torch.testing.assert_close(gumbel(logits, 0.5), expected)
    torch.testing.assert_close(concrete(logits, 0.5), (logits / 0.5).sigmoid())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("drawn", [0.0, 1.0])
@pytest.mark.parametrize("latent", [GumbelSoftmax(4), BinaryConcrete(8)], ids=repr)
def test_extreme_draws_and_logits_stay_finite(
    monkeypatch: pytest.MonkeyPatch, latent: Latent, drawn: float, dtype: torch.dtype
) -> None:
    def extreme(like: Tensor, **options: Any) -> Tensor:
        assert torch.finfo(options["dtype"]).bits >= 32  # 16-bit draws would be coarse
        return torch.full_like(like, drawn, **options)

    monkeypatch.setattr(torch, "rand_like", extreme)
    logits = torch.tensor([-6e4, 6e4, 0.0, 0.0, 1e-5, 40.0, 6e4, 6e4], dtype=dtype)
    logits.requires_grad_()
    relaxed = latent.train()(logits, 1.0)
    assert relaxed.dtype == dtype
    assert relaxed.isfinite().all()
    weight = torch.arange(8, dtype=dtype)
    (gradient,) = torch.autograd.grad((relaxed * weight).sum(), logits)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("size", [2.0**30, -(2.0**30)])
def test_noise_decides_between_equal_logits_of_any_size(size: float) -> None:
    """To a float32 as large as that it cannot be added."""

    def sample(logits: Tensor) -> Tensor:
        torch.manual_seed(0)
        return GumbelSoftmax(20, categories=3)(logits, 0.7)

    zeros = torch.zeros(5, 60)
    assert sample(zeros + size).equal(sample(zeros))


@pytest.mark.parametrize("latent", [GumbelSoftmax(500), BinaryConcrete(1000)], ids=repr)
def test_gradients_of_samples_are_finite_and_right(latent: Latent) -> None:
    torch.manual_seed(0)
    scales = torch.tensor([1e-30, 1.0, 1e4, 1e30]).unsqueeze(-1)
    logits = (torch.randn(4, 1000, generator=seeded(1)) * scales).requires_grad_()
    (gradient,) = torch.autograd.grad(latent(logits, 0.05).square().sum(), logits)
    assert gradient.isfinite().all()
    assert gradient[1].abs().max() > 0.1
    few = torch.randn(1, latent.width, generator=seeded(2)).double()[:, :1000].requires_grad_()

    def repeated(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return latent(x, 0.7).square().sum()

    assert torch.autograd.gradcheck(repeated, (few,), fast_mode=True)


def test_the_temperature_falls_exponentially_then_stays() -> None:
    assert annealed_temperature(0) == 5.0
    assert annealed_temperature(0.7) == pytest.approx(0.7)
    assert annealed_temperature(1.0) == annealed_temperature(0.7)
    steps = [annealed_temperature(0.07 * k) for k in range(11)]
    ratios = [after / before for before, after in pairwise(steps)]
    assert ratios == pytest.approx([(0.7 / 5.0) ** 0.1] * 10)
    assert annealed_temperature(0.25, start=8, end=2, until=0.5) == pytest.approx(4.0)
