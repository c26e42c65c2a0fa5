"""A family from outside the package, one file and nothing edited, wherever the library's own go."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import scipy.stats
import torch

import setwise as sw
from family_cases import ENGINES, LOSSES, Case, defined_loss, run_loss, scipy_log
from setwise import metrics
from setwise.models import BinaryConcrete, SetAutoencoder, find_prototypes, start_at_prototypes
from weibull_family import Weibull

CASE = Case(
    Weibull(2, weight=0.5, shape=1.5),
    lambda x, y: scipy_log(scipy.stats.weibull_min.logpdf, x, 1.5, 0.0, y.exp()),
    lambda y: torch.as_tensor(scipy.stats.weibull_min.mean(1.5, 0.0, y.exp().numpy())),
    means=[0.5, 3.0],
    answers=[0.5, 3.0],
    refused=[0.0, -1.0, math.inf],
    corners=[1e-3, 1.0, 1e3],
    tolerant=True,
)
MIXED = sw.Features(sw.Categorical(3), CASE.family, sw.Angle(1))


def test_it_is_one_short_file() -> None:
    lines = (Path(__file__).parent / "weibull_family.py").read_text().splitlines()
    assert len(lines) < 80


def test_it_is_the_distribution_of_scipy() -> None:
    y, x = CASE.logits(50, seed=1), CASE.targets(50, seed=2)
    expected = -CASE.family.weight * CASE.log_density(x, y)
    torch.testing.assert_close(CASE.features.cost(y, x), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(CASE.features.mean(y), CASE.mean(y), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(CASE.features.from_probs(CASE.features.mean(y)), y)


def test_derivatives() -> None:
    leaves = CASE.logits(3, seed=1).requires_grad_(), CASE.targets(3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(CASE.features.cost, leaves)
    assert torch.autograd.gradgradcheck(CASE.features.cost, leaves)


@pytest.mark.parametrize(("loss", "impl"), ENGINES)
def test_every_loss_and_engine(loss: str, impl: str | None) -> None:
    y, x = CASE.logits(3, 5, seed=1), CASE.targets(3, 5, seed=2)
    dtype, close = (torch.float32, 2e-4) if impl == "triton" else (torch.float64, 1e-9)
    found = run_loss(loss, impl, y.to(dtype), x.to(dtype), CASE.features)
    expected = defined_loss(loss, CASE.costs(y, x))
    torch.testing.assert_close(found.double(), expected, rtol=close, atol=close)


@pytest.mark.parametrize("loss", LOSSES)
def test_masks_and_neighbours(loss: str) -> None:
    """Beside other families, with hidden targets that no waiting time could be."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2, 4, MIXED.width, generator=generator, dtype=torch.float64).requires_grad_()
    x = MIXED.random_targets((2, 4), generator).double()
    x[1, 3] = 0.0
    lengths = torch.tensor([4, 3])
    impl = None if (loss, None) in ENGINES else "auto"
    masks = {"input_valid": lengths, "target_valid": lengths}
    value = run_loss(loss, impl, y, x, MIXED, **masks)
    alone = run_loss(loss, impl, y[1:, :3], x[1:, :3], MIXED)
    torch.testing.assert_close(value[1:], alone)
    (gradient,) = torch.autograd.grad(value.sum(), y)
    assert gradient.isfinite().all()


def test_targets_that_are_not_allowed() -> None:
    for bad in CASE.refused:
        with pytest.raises(ValueError, match="target: Weibull features must be waiting times"):
            sw.set_cross_entropy(CASE.logits(2, 3), torch.full((2, 3, 2), bad), CASE.features)


def test_metrics() -> None:
    x = CASE.targets(4, 3)
    right = CASE.features.from_probs(x.flip(1))
    late = CASE.features.from_probs(x.flip(1) + 0.25)
    for metric in (metrics.set_success, metrics.multiset_equality):
        assert metric(right, x, CASE.features, tolerance=1e-9) == 1.0
        assert metric(late, x, CASE.features, tolerance=0.2) < 1.0
        assert metric(late, x, CASE.features, tolerance=0.3) == 1.0
    assert metrics.matched_error(right, x, CASE.features).item() == pytest.approx(0.0, abs=1e-9)
    assert 0 < metrics.matched_error(late, x, CASE.features) <= 0.25
    counted = metrics.MatchedError(MIXED)
    mixed = MIXED.random_targets((4, 3), torch.Generator().manual_seed(0))
    counted.update(MIXED.from_probs(mixed), mixed)
    assert counted.compute().item() == pytest.approx(0.0, abs=1e-6)


def test_padding() -> None:
    """It spells no digits itself, but is a proper element beside families that do."""
    sets = [MIXED.random_targets((n,), torch.Generator().manual_seed(n)) for n in (1, 4, 3)]
    padded = sw.pad_sets(sets, 6, MIXED)
    assert all(map(torch.equal, sw.unpad_sets(padded), sets))
    with_flag = sw.Features(*MIXED.blocks, sw.Bernoulli(1))
    with_flag.check_targets("padded", padded)
    assert len(padded[0, 1:].unique(dim=0)) == 5
    answers = sw.unpad_sets(with_flag.discretise(with_flag.from_probs(padded)))
    assert [len(answer) for answer in answers] == [1, 4, 3]


def test_prototypes() -> None:
    """Short and long waits in every set: one prototype each, the mean."""
    generator = torch.Generator().manual_seed(0)
    kinds = torch.tensor([[0.1, 0.2], [5.0, 9.0]])
    sets = sw.shuffle_sets(kinds * torch.rand(30, 2, 2, generator=generator).add(0.5), generator)
    found = find_prototypes(sets, CASE.features)
    found = found[found[:, 0].argsort()]
    torch.testing.assert_close(found, kinds, rtol=0.15, atol=0.0)
    torch.testing.assert_close(CASE.family.mean(CASE.family.soft_logits(found)), found)


def test_an_autoencoder_learns() -> None:
    torch.manual_seed(0)
    sets = MIXED.random_targets((40, 2), torch.Generator().manual_seed(3))
    model = SetAutoencoder(2, MIXED, BinaryConcrete(8), (32,), (32,), 32, dropout=0.0)
    start_at_prototypes(model, sets, MIXED)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    history = []
    for _ in range(60):
        loss = sw.set_cross_entropy(model(sets), sets, MIXED)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        history.append(loss.item())
    assert history[-1] < history[0] - 0.5
    assert model.decode(model.encode(sets)).shape == sets.shape
