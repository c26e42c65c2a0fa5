"""Each family on its own: beside its definition elsewhere, and true to what it promises."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from family_cases import CASES, Case
from setwise.models import find_prototypes, pair_with_prototypes

every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def scores(features: sw.Features, logits: Tensor, target: Tensor) -> Tensor:
    """``T . eta - A + h``: all pairs [*, M, N]."""
    T, eta, A, h = features.dot_product(logits, target)
    found = T @ eta.mT - A.unsqueeze(-2)
    return found if h is None else found + h.unsqueeze(-1)


@every
def test_the_cost_is_that_of_the_distribution(case: Case) -> None:
    y, x = case.logits(50, seed=1), case.targets(50, seed=2)
    expected = -case.family.weight * case.log_density(x, y)
    torch.testing.assert_close(case.features.cost(y, x), expected, rtol=1e-9, atol=1e-9)


@every
def test_the_dot_product_is_the_cost(case: Case) -> None:
    y, x = case.logits(3, 6, seed=1), case.targets(3, 5, seed=2)
    costs = case.features.cost(
        y.unsqueeze(-3).expand(3, 5, 6, -1), x.unsqueeze(-2).expand(3, 5, 6, -1)
    )
    torch.testing.assert_close(-scores(case.features, y, x), costs, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(costs, case.costs(y, x), rtol=1e-9, atol=1e-9)


@every
def test_the_default_cost_is_the_one_that_is_written_out(case: Case) -> None:
    y, x = case.logits(20, seed=1), case.targets(20, seed=2)
    torch.testing.assert_close(sw.Family.cost(case.family, y, x), case.family.cost(y, x))


@every
def test_derivatives(case: Case) -> None:
    """To outputs and to targets, which are moved inside what is allowed."""
    y, x = case.logits(3, seed=1), 0.8 * case.targets(3, seed=2) + 0.1
    leaves = (y.requires_grad_(), x.requires_grad_())
    for function in (case.features.cost, lambda y, x: scores(case.features, y, x)):
        assert torch.autograd.gradcheck(function, leaves)
        assert torch.autograd.gradgradcheck(function, leaves)


@every
@pytest.mark.parametrize("size", [10.0, 1e2, 1e4])
def test_no_output_is_too_large(case: Case, size: float) -> None:
    """Scores, costs and their gradients stay finite, in float32."""
    signs = torch.randint(
        -1, 2, (200, case.family.width), generator=torch.Generator().manual_seed(0)
    )
    y, x = (size * signs).requires_grad_(), case.targets(9).float()
    pairs = case.features.cost(y.unsqueeze(0).expand(9, 200, -1), x.unsqueeze(1).expand(9, 200, -1))
    for costs in (pairs, -scores(case.features, y, x)):
        (gradient,) = torch.autograd.grad(costs.sum(), y)
        assert costs.isfinite().all()
        assert gradient.isfinite().all()
    for answers in (case.features.discretise(y), case.features.mean(y)):
        assert answers.isfinite().all()


@every
def test_means(case: Case) -> None:
    y = case.logits(40)
    mean = case.features.mean(y)
    torch.testing.assert_close(mean, case.mean(y), rtol=1e-9, atol=1e-9)
    again = case.features.mean(case.features.from_probs(mean))
    torch.testing.assert_close(again, mean, rtol=1e-9, atol=1e-9)


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_means_at_the_corners(case: Case, dtype: torch.dtype) -> None:
    """Whatever is allowed as a target has a finite output and a finite gradient."""
    corners = torch.tensor(case.corners).clamp(-6e4, 6e4).to(dtype)  # halves end at 65504
    mean = corners.unsqueeze(-1).expand(-1, case.family.width).clone().requires_grad_()
    logits = case.features.from_probs(mean)
    (gradient,) = torch.autograd.grad(logits.sum(), mean)
    assert logits.isfinite().all()
    assert gradient.isfinite().all()
    assert (gradient > 0).all()
    assert case.family.soft_logits(mean.detach()).isfinite().all()


@every
def test_answers(case: Case) -> None:
    logits = case.features.from_probs(torch.tensor([case.means, case.means]))
    expected = torch.tensor([case.answers, case.answers])
    torch.testing.assert_close(case.features.discretise(logits), expected, rtol=0, atol=1e-6)
    drawn = case.targets(50).float()
    assert case.features.discretise(case.features.from_probs(drawn)).equal(drawn)


@every
def test_random_targets_are_allowed_and_seeded(case: Case) -> None:
    target, again, other = (case.targets(4, 5, seed=seed) for seed in (0, 0, 1))
    assert target.shape == (4, 5, case.family.width)
    assert target.equal(again)
    assert not target.equal(other)
    case.features.check_targets("target", case.targets(1000))
    torch.manual_seed(3)
    without = case.family.random_targets((7,))
    torch.manual_seed(3)
    assert without.equal(case.family.random_targets((7,)))
    generator = torch.Generator().manual_seed(0)
    assert case.family.random_targets((2,), generator).device == generator.device


@every
def test_targets_that_are_not_allowed(case: Case) -> None:
    case.features.check_targets(
        "target", torch.tensor(case.corners).unsqueeze(-1).expand(-1, case.family.width)
    )
    for bad in (*case.refused, math.nan):
        target = case.targets(2, 3)
        target[1, 2, -1] = bad
        with pytest.raises(ValueError, match=r"target: .*must be .*, found values from"):
            sw.set_cross_entropy(case.logits(2, 3), target, case.features)
        with pytest.raises(ValueError, match=r"probs: .*must be .*, found values from"):
            case.features.from_probs(target)
        with pytest.raises(ValueError, match=r"sets: .*must be .*, found values from"):
            find_prototypes(target, case.features)
        hidden = torch.tensor([3, 2])  # what a mask hides may be anything
        value = sw.set_cross_entropy(case.logits(2, 3), target, case.features, target_valid=hidden)
        assert value.isfinite()


@every
@pytest.mark.parametrize("tolerance", [0.0, 0.3, 2.0])
def test_comparison(case: Case, tolerance: float) -> None:
    """All pairs of targets and answers, some of them the same, some nearly."""
    x = case.targets(2, 12)
    nudge = 0.25 * torch.linspace(-1, 1, 12, dtype=torch.float64).unsqueeze(-1)
    logits = case.features.from_probs(x)
    y = case.features.discretise(torch.cat([logits, logits + nudge, case.logits(2, 12, seed=3)], 1))
    a, b = torch.broadcast_tensors(x.unsqueeze(-2), y.unsqueeze(-3))
    apart = case.distance(a, b)
    allowed = apart <= tolerance if case.tolerant else a == b
    different = case.family.differ(x, y, tolerance)
    assert different.shape == (2, 12, 36)
    assert different.equal(~allowed.all(-1))
    assert different.any()
    assert not different.diagonal(dim1=-2, dim2=-1).any()
    errors = case.family.error(x, y) / case.family.questions
    torch.testing.assert_close(errors, case.error(a, b), rtol=1e-9, atol=1e-9)
    assert case.family.questions == (1 if case.choice else case.family.width)
    assert case.family.is_choice == case.choice


@every
def test_an_output_that_is_no_number_is_no_answer(case: Case) -> None:
    """Bits and classes are always answered; all other features say what they were given."""
    x = case.targets(3)
    answers = case.features.discretise(torch.full_like(x, math.nan))
    assert answers.isnan().all() or ((answers == 0) | (answers == 1)).all()
    if answers.isnan().any():
        assert case.family.differ(x, answers, 1e9).all()
        x[1, 0] = math.nan
        assert case.family.differ(case.targets(3), x, 1e9)[:, 1].all()


@every
def test_dummies(case: Case) -> None:
    """They come back out, differ among themselves, and are elements like any others."""
    size = 3 + min(3, case.most_dummies)
    sets = [case.targets(n, seed=n).float() for n in (3, size, size - 1)]
    padded = sw.pad_sets(sets, size, case.features)
    assert padded.shape == (3, size, case.family.width + 1)
    assert all(map(torch.equal, sw.unpad_sets(padded), sets))
    empty = torch.zeros(0, case.family.width)
    dummies = sw.pad_sets([empty], case.most_dummies, case.features)[0]
    assert dummies[:, -1].eq(1).all()
    case.features.check_targets("dummies", dummies[:, :-1])
    assert len(dummies.unique(dim=0)) == case.most_dummies
    same = ~case.family.differ(dummies[:, :-1], dummies[:, :-1], 1e-3)
    assert same.equal(torch.eye(case.most_dummies, dtype=torch.bool))
    assert math.prod(case.family.dummy_digits) == case.most_dummies
    with pytest.raises(ValueError, match=f"size: {case.most_dummies + 1} dummies"):
        sw.pad_sets([empty], case.most_dummies + 1, case.features)


@every
def test_prototypes_are_found_and_stood_for(case: Case) -> None:
    """Sets of the same two elements, in either order: these are the prototypes."""
    generator = torch.Generator().manual_seed(5)
    two = case.targets(40, seed=4).float().unique(dim=0)[[0, -1]]
    sets = sw.shuffle_sets(two.expand(30, 2, -1), generator)
    found = find_prototypes(sets, case.features)
    order = found.sub(two[0]).abs().amax(-1).argsort()
    torch.testing.assert_close(found[order], two, rtol=1e-5, atol=1e-5)
    pairs = pair_with_prototypes(sets, found, case.features)
    paired = sets.gather(1, pairs.unsqueeze(-1).expand_as(sets))
    torch.testing.assert_close(paired, found.expand_as(sets), rtol=1e-5, atol=1e-5)
    soft = case.family.soft_logits(two)
    torch.testing.assert_close(case.family.mean(soft), two, rtol=1e-3, atol=2e-3)


@every
def test_names_and_equality(case: Case) -> None:
    family = case.family
    names = {kind.__name__: kind for kind in (type(family), sw.Features)}
    assert eval(repr(case.features), names) == case.features
    assert hash(eval(repr(family), names)) == hash(family)
    assert replace(family, weight=7.0) != family
    assert [other.family == family for other in CASES.values()].count(True) == 1
    assert case.features.plain_bernoulli == (family == sw.Bernoulli(3))
    assert issubclass(type(family), sw.Family)


def test_plain_bernoulli_is_nothing_else() -> None:
    class Own(sw.Bernoulli):
        """Might score in a way of its own."""

    assert sw.Features(sw.Bernoulli(5)).plain_bernoulli
    for blocks in ([sw.Bernoulli(5, weight=2.0)], [sw.Bernoulli(2), sw.Bernoulli(3)], [Own(5)]):
        assert not sw.Features(*blocks).plain_bernoulli


def test_compared_numbers_are_counted() -> None:
    """Of an angle those are two, a cosine and a sine."""
    features = sw.Features(sw.Angle(9), sw.Bernoulli(2), sw.Gaussian(3))
    sharpness = features.factors(torch.zeros(1, 14), torch.zeros(1, 14)).sharpness
    assert sharpness is not None
    assert features.comparable == len(sharpness) == 21


def test_angles_go_round() -> None:
    """Full turns change nothing, and the average of angles on both sides of pi lies at pi."""
    family = sw.Angle(2, concentration=4.0)
    x, y = torch.tensor([[3.0, -1.0]]).double(), torch.tensor([[-3.1, 2.0]]).double()
    turned = y + 2 * math.pi * torch.tensor([3.0, -2.0]).double()
    torch.testing.assert_close(family.cost(turned, x), family.cost(y, x))
    torch.testing.assert_close(family.mean(turned), y)
    assert family.average(torch.tensor([[3.0, 0.5], [-3.0, 0.7]]), 0).tolist() == pytest.approx(
        [math.pi, 0.6], abs=1e-6
    )
    edges = torch.tensor([[math.pi, -math.pi], [3.1415925, -3.1415925]])
    assert (family.mean(edges) >= -math.pi).all()
    assert (family.mean(edges) < math.pi).all()
    assert family.mean(edges)[1].equal(edges[1])
    assert family.mean(edges)[0].equal(edges[0, 1:].expand(2))


def test_angles_of_any_turn_are_answered_exactly() -> None:
    """Those of a compass go from 0 to 2 pi; what answers them is found without a tolerance."""
    x = torch.linspace(-20, 20, 101).unsqueeze(-1)
    features = sw.Features(sw.Angle(1))
    assert sw.metrics.multiset_equality(features.from_probs(x), x, features) == 1.0
    assert sw.metrics.matched_error(features.from_probs(x), x, features) == 0.0


def test_small_angles_are_gaussian() -> None:
    x, y = torch.tensor([[1e-4]]).double(), torch.tensor([[-2e-4]]).double()
    angle, gaussian = sw.Angle(concentration=4.0), sw.Gaussian(scale=0.5)
    torch.testing.assert_close(angle.cost(y, x), gaussian.cost(y, x), rtol=1e-6, atol=0)
    torch.testing.assert_close(angle.error(x, y), gaussian.error(x, y))


def test_poisson_between_the_integers() -> None:
    """Targets may be averages of counts; PyTorch's own loss knows them too, but for log x!."""
    x, y = torch.tensor([[0.5, 2.25]]).double(), torch.tensor([[-1.0, 3.0]]).double()
    nll = torch.nn.functional.poisson_nll_loss(y, x, reduction="none")
    expected = (nll + torch.lgamma(x + 1)).sum(-1)
    torch.testing.assert_close(sw.Poisson(2).cost(y, x), expected)
    assert sw.Poisson(1).differ(x[:, :1], torch.zeros(1, 1).double(), 1.0).item()


@pytest.mark.parametrize("setting", [0.0, -1.0, math.nan, math.inf])
def test_settings_are_positive(setting: float) -> None:
    for make in (lambda c: sw.Angle(1, concentration=c), lambda s: sw.Gaussian(1, scale=s)):
        with pytest.raises(ValueError, match="must lie between 1e-15 and 1e15"):
            make(setting)
    for kind in (sw.Poisson, sw.Angle, sw.Bernoulli):
        with pytest.raises(ValueError, match=f"{kind.__name__}: weight must lie between"):
            kind(1, weight=setting)


def test_scoring_concerns_choices_alone() -> None:
    features = sw.Features(sw.Categorical(3, weight=2.0), sw.Angle(1), sw.Bernoulli(2))
    scored = features.scored_as("bernoulli")
    assert scored.blocks[0] == sw.Categorical(3, weight=2.0, scored_as="bernoulli")
    assert scored.blocks[1:] == features.blocks[1:]
    assert scored.scored_as("categorical") == features
    wrong: Any = "softmax"
    with pytest.raises(ValueError, match="'categorical', 'bernoulli', got 'softmax'"):
        features.scored_as(wrong)


@pytest.mark.parametrize("block", [3, "Bernoulli", sw.Bernoulli, None])
def test_blocks_are_families(block: Any) -> None:
    with pytest.raises(TypeError, match=r"an instance of a subclass of setwise\.Family"):
        sw.Features(sw.Bernoulli(2), block)


def test_averages_are_of_elements() -> None:
    features = sw.Features(sw.Gaussian(1), sw.Angle(1))
    elements = torch.tensor([[[1.0, 3.0], [2.0, 1.0]], [[3.0, -3.0], [4.0, 2.0]]])
    expected = torch.tensor([[2.0, math.pi], [3.0, 1.5]])
    torch.testing.assert_close(features.average(elements, 0), expected)
    for dim in (-1, 2):
        with pytest.raises(ValueError, match=f"dim: {dim} is that of the features"):
            features.average(elements, dim)
