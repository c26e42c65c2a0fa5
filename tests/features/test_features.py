"""Element families: the dot-product form against the cost written straight from its definition."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import setwise as sw
from setwise import Bernoulli, Categorical, Features, Gaussian, set_cross_entropy
from setwise.features import Family

FEATURES = [
    Features(Bernoulli(3)),
    Features(Bernoulli(3, weight=2.5)),
    Features(Categorical(4)),
    Features(Categorical(4, weight=0.25)),
    Features(Categorical(4, scored_as="bernoulli")),
    Features(Categorical(2, weight=3.0, scored_as="bernoulli")),
    Features(Gaussian(3)),
    Features(Gaussian(2, weight=0.5, scale=0.1)),
    Features(Bernoulli(2), Categorical(3), Gaussian(2, scale=2.0)),
    Features(
        Gaussian(1, scale=3.0),
        Categorical(3, weight=0.5, scored_as="bernoulli"),
        Bernoulli(1, weight=2.0),
        Gaussian(2, weight=1.5),
        Categorical(2),
    ),
]
each = pytest.mark.parametrize("features", FEATURES, ids=str)
PROBABILITIES = [f for f in FEATURES if all(not isinstance(b, Gaussian) for b in f.blocks)]


def defined_score(block: Family, x: Tensor, y: Tensor) -> Tensor:
    """``-H`` of targets x [M, 1, w] under outputs y [1, N, w], by definition and in float64."""
    x, y = x.double(), y.double()
    if isinstance(block, Gaussian):
        terms = -((x - y) ** 2) / (2 * block.scale**2)
    elif isinstance(block, Categorical):
        p = y.softmax(-1)
        terms = x * p.log()
        if block.scored_as == "bernoulli":
            terms = terms + (1 - x) * (1 - p).log()
    else:
        p = y.sigmoid()
        terms = x * p.log() + (1 - x) * (1 - p).log()
    return block.weight * terms.sum(-1)


def defined_scores(features: Features, logits: Tensor, target: Tensor) -> Tensor:
    y, x = features.split(logits.unsqueeze(-3)), features.split(target.unsqueeze(-2))
    parts = zip(features.blocks, x, y, strict=True)
    return torch.stack([defined_score(*part) for part in parts]).sum(0)


def factored_scores(
    features: Features, logits: Tensor, target: Tensor, target_valid: Tensor | None = None
) -> Tensor:
    """``T . eta - A + h``: all pairs [*, M, N]."""
    T, eta, A, h = features.dot_product(logits, target, target_valid)
    scores = T @ eta.mT - A.unsqueeze(-2)
    return scores if h is None else scores + h.unsqueeze(-1)


def soft_targets(features: Features, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Targets inside the probability simplex rather than on its corners."""
    noise = torch.randn(*shape, features.width, generator=generator)
    parts = []
    for block, part in zip(features.blocks, features.split(noise), strict=True):
        if isinstance(block, Gaussian):
            parts.append(part)
        else:
            parts.append(part.softmax(-1) if isinstance(block, Categorical) else part.sigmoid())
    return torch.cat(parts, -1)


@each
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    M=st.integers(1, 5),
    N=st.integers(1, 5),
    lead=st.sampled_from([(), (2,), (2, 3)]),
    soft=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_dot_product_is_the_negative_cross_entropy(
    features: Features, M: int, N: int, lead: tuple[int, ...], soft: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(*lead, N, features.width, generator=generator)
    draw = soft_targets if soft else Features.random_targets
    target = draw(features, (*lead, M), generator)
    exact = defined_scores(features, logits, target)
    double = factored_scores(features, logits.double(), target.double())
    single = factored_scores(features, logits, target)
    torch.testing.assert_close(double, exact, rtol=1e-10, atol=1e-9)
    scale = exact.abs().amax().item()
    torch.testing.assert_close(single.double(), exact, rtol=1e-5, atol=1e-5 * (1 + scale))


def test_agrees_with_torch_distributions() -> None:
    logits, target = torch.linspace(-4, 5, 12).double().reshape(4, 3), torch.eye(3).double()[2:]
    bernoulli = torch.distributions.Bernoulli(logits=logits).log_prob(target).sum(-1)
    categorical = torch.distributions.Categorical(logits=logits).log_prob(torch.tensor(2))
    close = torch.testing.assert_close
    close(factored_scores(Features(Bernoulli(3)), logits, target)[0], bernoulli)
    close(factored_scores(Features(Categorical(3)), logits, target)[0], categorical)


@pytest.mark.parametrize("others", [(), (Bernoulli(2),)])
def test_gaussian_far_from_the_origin(others: tuple[Family, ...]) -> None:
    """In float32 the squares of 1e4 leave nothing of distances near 1, unless care is taken."""
    features = Features(Gaussian(3), *others)
    generator = torch.Generator().manual_seed(0)
    target = features.random_targets((8, 6), generator)
    logits = torch.randn(8, 5, features.width, generator=generator)
    centre = 1e4 * torch.randn(8, 1, 3, generator=generator)  # each set has its own
    target[..., :3] += centre
    logits[..., :3] += centre
    exact = defined_scores(features, logits, target)
    scores = factored_scores(features, logits, target).double()
    torch.testing.assert_close(scores, exact, rtol=1e-5, atol=1e-4)


def test_filling_does_not_move_the_origin_of_a_gaussian() -> None:
    """Masked targets are zeros, which would pull the mean of a distant set towards them."""
    features = Features(Gaussian(2))
    generator = torch.Generator().manual_seed(0)
    target = 1e4 + torch.randn(4, 2, generator=generator)
    logits = 1e4 + torch.randn(3, 2, generator=generator)
    valid = torch.tensor([True, False, True, False])
    target[~valid] = 0
    scores = factored_scores(features, logits, target, valid)[valid]
    exact = defined_scores(features, logits, target)[valid]
    torch.testing.assert_close(scores.double(), exact, rtol=1e-5, atol=1e-4)


@each
@pytest.mark.parametrize("size", [10.0, 1e2, 1e4])
def test_saturated_logits_stay_finite(features: Features, size: float) -> None:
    """A confident network, right or wrong, must get a number and a gradient."""
    generator = torch.Generator().manual_seed(0)
    corners = torch.randint(-1, 2, (500, features.width), generator=generator)
    logits, target = (size * corners).requires_grad_(), features.random_targets((9,), generator)
    scores = factored_scores(features, logits, target)
    (gradient,) = torch.autograd.grad(scores.sum(), logits)
    assert scores.isfinite().all()
    assert gradient.isfinite().all()
    if size == 10:  # the definition itself still holds up in float64
        exact = defined_scores(features, logits, target)
        tolerance = 1e-6 * exact.abs().amax().item()
        torch.testing.assert_close(scores.double(), exact, rtol=1e-5, atol=tolerance)


def test_confident_mistake_still_learns() -> None:
    """Where the softmax is saturated on a wrong class, the cost keeps its full slope."""
    for scored_as in ("categorical", "bernoulli"):
        logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
        features = Features(Categorical(3, scored_as=scored_as))
        scores = factored_scores(features, logits, torch.tensor([[0.0, 1.0, 0.0]]))
        (gradient,) = torch.autograd.grad(scores.sum(), logits)
        assert gradient[0, 0] < -0.5
        assert gradient[0, 1] > 0.5


@given(st.lists(st.floats(1e-4, 1 - 1e-4), min_size=2, max_size=5))
@settings(deadline=None, derandomize=True)
def test_from_probs_inverts_the_link_inside(probs: list[float]) -> None:
    p = torch.tensor(probs, dtype=torch.float64)
    torch.testing.assert_close(Features(Bernoulli(len(p))).from_probs(p).sigmoid(), p)
    share = p / p.sum()
    torch.testing.assert_close(Features(Categorical(len(p))).from_probs(share).softmax(-1), share)
    assert Features(Gaussian(len(p))).from_probs(p).equal(p)


@pytest.mark.parametrize("features", PROBABILITIES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_from_probs_of_certainty(features: Features, dtype: torch.dtype) -> None:
    """Exactly 0 and 1 give finite logits, and a gradient that can undo a wrong certainty."""
    probs = torch.eye(features.width, dtype=dtype).requires_grad_()
    logits = features.from_probs(probs)
    (through_logits,) = torch.autograd.grad(logits.sum(), probs, retain_graph=True)
    assert logits.isfinite().all()
    assert (through_logits.isfinite() & (through_logits > 0)).all()

    wrong = torch.eye(features.width, dtype=dtype).roll(1, 0)
    losses = [set_cross_entropy(logits[i : i + 1], wrong[i : i + 1], features) for i in (0, 1)]
    (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), probs)
    assert gradient[:2].isfinite().all()
    assert (gradient[:2][wrong[:2] == 1] < 0).all()  # more of what the target asks for


def test_discretise_gives_the_likeliest_element() -> None:
    features = Features(Bernoulli(2), Categorical(3), Gaussian(1))
    logits = torch.tensor([[0.1, -5.0, 1.0, 3.0, 2.0, 0.7], [0.0, 9.0, -1.0, -3.0, -2.0, -4.0]])
    expected = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.0, 0.7], [0.0, 1.0, 1.0, 0.0, 0.0, -4.0]])
    assert features.discretise(logits).equal(expected)
    ties = Features(Categorical(4)).discretise(torch.zeros(5, 4, dtype=torch.float64))
    assert ties.dtype == torch.float64
    assert ties.sum(-1).eq(1).all()


@each
def test_random_targets_are_valid_and_seeded(features: Features) -> None:
    seeds = (torch.Generator().manual_seed(seed) for seed in (0, 0, 1))
    target, again, other = (features.random_targets((4, 5), seed) for seed in seeds)
    assert target.shape == (4, 5, features.width)
    assert target.equal(again)
    assert not target.equal(other)
    for block, part in zip(features.blocks, features.split(target), strict=True):
        if isinstance(block, Gaussian):
            assert part.isfinite().all()
            continue
        assert ((part == 0) | (part == 1)).all()
        assert part.any()
        assert not part.all()
        if isinstance(block, Categorical):
            assert part.sum(-1).eq(1).all()
    assert features.discretise(features.from_probs(target)).equal(target)


@each
def test_equality_hash_and_repr(features: Features) -> None:
    names = {kind.__name__: kind for kind in (Bernoulli, Categorical, Gaussian, Features)}
    copy = eval(repr(features), names)
    assert copy == features
    assert hash(copy) == hash(features)
    assert [other == features for other in FEATURES].count(True) == 1
    assert features != features.blocks
    assert features.width == sum(block.width for block in features.blocks)


def test_families_differ_by_kind_and_cannot_be_changed() -> None:
    assert len({Bernoulli(2), Categorical(2), Gaussian(2), Bernoulli(2)}) == 3
    with pytest.raises(FrozenInstanceError):
        Bernoulli(2).width = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="2 classes"):
        Categorical(1)


@each
def test_split_refuses_another_width(features: Features) -> None:
    elements = torch.arange(features.width)
    assert torch.cat(features.split(elements), -1).equal(elements)
    with pytest.raises(ValueError, match=f"expected {features.width} features"):
        features.split(torch.zeros(2, features.width + 1))


class Counts(Family):
    """A family of one's own, with a base measure: outputs are log rates, targets counts."""

    target_range = (0.0, math.inf)

    def natural(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        return logits, logits.exp().sum(-1)

    def base(self, target: Tensor) -> Tensor:
        return -torch.lgamma(target + 1).sum(-1)

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        nll = torch.nn.PoissonNLLLoss(reduction="none")(logits, target)
        return (nll + torch.lgamma(target + 1)).sum(-1)

    def mean(self, logits: Tensor) -> Tensor:
        return logits.exp()

    def from_mean(self, mean: Tensor) -> Tensor:
        return mean.log()

    def random_targets(self, shape: Any, generator: Any) -> Tensor:
        return torch.randint(0, 5, (*shape, self.width), generator=generator).float()


def test_a_family_of_ones_own_is_scored_with_its_base_measure() -> None:
    """With a single target and a single output, every loss is the cost of the one pair."""
    features = Features(Counts(2), Bernoulli(1))
    z, x = torch.randn(1, 1, 3), torch.tensor([[[4.0, 0.0, 1.0]]])
    expected = features.cost(z, x).item()
    for loss in (sw.set_cross_entropy, sw.set_average, sw.ordered_cross_entropy):
        assert loss(z, x, features).item() == pytest.approx(expected, rel=1e-5)
