"""The losses at points whose value is known: the paper's example, oracles, empty sets, extremes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist, directed_hausdorff
from torch import Tensor
from torch.nn import functional as F

import setwise as sw

LOSSES = [
    sw.ordered_cross_entropy,
    sw.set_cross_entropy,
    sw.set_average,
    sw.hausdorff,
    sw.assignment_cross_entropy,
    sw.set_likelihood,
    sw.stable_matching_cross_entropy,
    sw.transport_cross_entropy,
]
X = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
Y1 = sw.Features(sw.Bernoulli(2)).from_probs(torch.tensor([[0.1, 0.5], [0.1, 0.5]]))
Y2 = sw.Features(sw.Bernoulli(2)).from_probs(torch.tensor([[0.1, 0.5], [0.9, 0.5]]))


@pytest.mark.parametrize(
    ("loss", "outputs", "likelihood"),
    [
        (sw.set_cross_entropy, Y1, 0.81),
        (sw.set_cross_entropy, Y2, 0.25),
        (sw.set_average, Y1, 0.2025**0.5),
        (sw.set_average, Y2, 0.2025**0.5),
        (sw.hausdorff, Y2, 0.45),
        (sw.assignment_cross_entropy, Y2, 0.45 * 0.05),
        (sw.set_likelihood, Y1, 2 * 0.45**2),
        (sw.set_likelihood, Y2, 2 * 0.45 * 0.05),
    ],
)
def test_worked_example_of_the_paper(loss: Any, outputs: Tensor, likelihood: float) -> None:
    assert loss(outputs, X).item() == pytest.approx(-math.log(likelihood), rel=1e-5)


def test_the_set_average_ignores_the_output_that_is_not_nearest() -> None:
    """The paper's remark: SH moves [0.9, 0.5] towards the targets, A1H leaves it where it is."""
    outputs = Y2.clone().requires_grad_()
    sw.set_average(outputs, X).backward()
    assert outputs.grad is not None
    assert outputs.grad[1].tolist() == [0.0, 0.0]
    outputs.grad = None
    sw.set_cross_entropy(outputs, X).backward()
    assert outputs.grad[1, 0] > 0


def _clouds(n: int, m: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    return (
        torch.randn(n, 3, generator=generator, dtype=torch.float64),
        torch.randn(m, 3, generator=generator, dtype=torch.float64),
    )


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_point_clouds_against_scipy_and_pot(impl: Any) -> None:
    """With Gaussian features of scale 1 the cost is half the squared distance."""
    y, x = _clouds(60, 50)
    points = sw.Features(sw.Gaussian(3))
    nearest, _ = cKDTree(y.numpy()).query(x.numpy())
    back, _ = cKDTree(x.numpy()).query(y.numpy())
    chamfer = (nearest**2).mean() / 2
    assert sw.set_average(y, x, points, impl=impl).item() == pytest.approx(chamfer)
    symmetric = sw.set_average(y, x, points, directed=False, impl=impl).item()
    assert symmetric == pytest.approx(chamfer + (back**2).mean() / 2)
    forward, backward = (
        directed_hausdorff(a.numpy(), b.numpy())[0] ** 2 / 2 for a, b in ((x, y), (y, x))
    )
    assert sw.hausdorff(y, x, points, impl=impl).item() == pytest.approx(forward)
    both = sw.hausdorff(y, x, points, directed=False, impl=impl).item()
    assert both == pytest.approx(max(forward, backward))
    soft = -np.log(np.exp(-cdist(x, y, "sqeuclidean") / 2).sum(1)).sum()
    assert sw.set_cross_entropy(y, x, points, impl=impl).item() == pytest.approx(soft)


def test_assignment_against_scipy_and_pot(ot: Any) -> None:
    y, x = _clouds(40, 40)
    points = sw.Features(sw.Gaussian(3))
    cost = cdist(x, y, "sqeuclidean") / 2
    rows, columns = linear_sum_assignment(cost)
    loss, matching = sw.assignment_cross_entropy(y, x, points, return_matching=True)
    assert matching.tolist() == columns.tolist()
    assert loss.item() == pytest.approx(cost[rows, columns].sum())
    uniform = np.full(40, 1 / 40)
    assert loss.item() == pytest.approx(40 * ot.emd2(uniform, uniform, cost))


def test_ordered_loss_is_the_one_of_pytorch() -> None:
    generator = torch.Generator().manual_seed(0)
    z, x = torch.randn(4, 5, 6, generator=generator), torch.rand(4, 5, 6, generator=generator)
    expected = F.binary_cross_entropy_with_logits(z, x, reduction="none").sum((-1, -2))
    torch.testing.assert_close(sw.ordered_cross_entropy(z, x, reduction="none"), expected)
    classes = torch.randint(6, (4, 5), generator=generator)
    expected = F.cross_entropy(z.mT, classes, reduction="none").sum(-1)
    features = sw.Features(sw.Categorical(6))
    got = sw.ordered_cross_entropy(z, F.one_hot(classes, 6).float(), features, reduction="none")
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.__name__)
class TestEmptySets:
    def test_no_target_costs_nothing(self, loss: Any) -> None:
        outputs = torch.randn(2, 3, 4, requires_grad=True)
        nothing = torch.zeros(2, dtype=torch.long)
        value = loss(outputs, torch.rand(2, 3, 4), target_valid=nothing, reduction="none")
        assert value.tolist() == [0.0, 0.0]
        value.sum().backward()
        assert outputs.grad is not None
        assert outputs.grad.eq(0).all()

    def test_targets_without_any_output_cost_infinity(self, loss: Any) -> None:
        outputs = torch.randn(2, 3, 4, requires_grad=True)
        lengths = torch.tensor([0, 3])
        value = loss(outputs, torch.rand(2, 3, 4), input_valid=lengths, reduction="none")
        assert value[0] == math.inf
        assert value[1].isfinite()
        value[1].backward()
        assert outputs.grad is not None
        assert outputs.grad.isfinite().all()

    def test_dimensions_of_size_zero(self, loss: Any) -> None:
        none_there, some = torch.zeros(2, 0, 4), torch.rand(2, 3, 4)
        assert loss(none_there, none_there, reduction="none").tolist() == [0.0, 0.0]
        if loss is sw.ordered_cross_entropy:
            return  # which demands as many outputs as targets
        assert loss(some, none_there, reduction="none").tolist() == [0.0, 0.0]
        assert loss(none_there, some, reduction="none").tolist() == [math.inf, math.inf]

    def test_an_empty_batch(self, loss: Any) -> None:
        value = loss(torch.zeros(0, 3, 4), torch.zeros(0, 3, 4), reduction="none")
        assert value.shape == (0,)
        assert loss(torch.zeros(0, 3, 4), torch.zeros(0, 3, 4), reduction="sum").item() == 0.0
        assert loss(torch.zeros(0, 3, 4), torch.zeros(0, 3, 4)).isnan()  # as in PyTorch


@pytest.mark.parametrize("loss", [sw.set_average, sw.hausdorff])
def test_undirected_losses_see_outputs_without_targets(loss: Any) -> None:
    with pytest.warns(RuntimeWarning, match=r"set \[0\] has 0 targets and 3 outputs; reduction"):
        value = loss(torch.zeros(1, 3, 4), torch.zeros(1, 0, 4), directed=False)
    assert value == math.inf
    assert loss(torch.zeros(1, 0, 4), torch.zeros(1, 0, 4), directed=False) == 0.0


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("loss", [sw.assignment_cross_entropy, sw.set_likelihood])
def test_an_infinite_batch_tells_which_set_it_is(loss: Any, reduction: str) -> None:
    """Reduced, nothing else would; with ``reduction="none"`` the result itself does."""
    call = torch.zeros(2, 3, 2, 4), torch.rand(2, 3, 5, 4)
    sizes = torch.tensor([[2, 2, 1], [0, 5, 3]])
    said = r"set \[1, 1\] \(and 1 more of 6\) has 5 targets and 2 outputs; every target needs an"
    with pytest.warns(RuntimeWarning, match=said):
        assert loss(*call, target_valid=sizes, reduction=reduction) == math.inf
    each = loss(*call, target_valid=sizes, reduction="none")
    assert each.isinf().tolist() == [[False, False, False], [False, True, True]]
    loss(*call, target_valid=sizes.clamp(max=2), reduction=reduction)  # says nothing


def test_without_outputs_that_alone_is_told() -> None:
    """Targets may share an output, but they need one."""
    valid = torch.tensor([3, 0])
    with pytest.warns(RuntimeWarning, match=r"set \[1\] has 2 targets and 0 outputs; reduction"):
        loss = sw.set_cross_entropy(torch.zeros(2, 3, 4), torch.rand(2, 2, 4), input_valid=valid)
    assert loss == math.inf


def test_more_targets_than_outputs_cannot_be_assigned() -> None:
    x = torch.eye(3)
    loss, matching = sw.assignment_cross_entropy(9 * x[:2], x, return_matching=True)
    assert loss == math.inf
    assert matching.tolist() == [0, 1, -1]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_costs_without_a_best_matching_are_told(bad: float) -> None:
    """In eager CPU code by an error; inside a transform, as on a GPU, no value is looked at."""
    z = torch.randn(2, 3, 4)
    z[1, 0, 0] = bad
    x = torch.zeros(2, 3, 4)
    with pytest.raises(ValueError, match="input: must be finite"):
        sw.assignment_cross_entropy(z, x)
    losses = torch.func.vmap(sw.assignment_cross_entropy)(z, x)
    assert losses.isfinite().tolist() == [True, False]


def test_costs_that_are_given_may_forbid_pairs() -> None:
    x = torch.eye(3)
    costs = torch.tensor([[0.0, 1.0, 9.0], [0.0, math.inf, 9.0], [math.inf, math.inf, 9.0]])
    call = partial(sw.assignment_cross_entropy, 9 * x, x, return_matching=True)
    assert call(matching_cost=costs)[1].tolist() == [1, 0, 2]
    costs[2, 2] = math.inf
    loss, matching = call(matching_cost=costs)
    assert loss == math.inf
    assert matching.tolist() == [1, 0, -1]
    with pytest.raises(ValueError, match=r"matching_cost: problem 0 .* NaN or minus infinity"):
        call(matching_cost=costs.fill_(math.nan))


@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("loss", [sw.set_cross_entropy, sw.set_average, sw.hausdorff])
@pytest.mark.parametrize(
    "features",
    [
        sw.Features(sw.Bernoulli(4)),
        sw.Features(sw.Categorical(4)),
        sw.Features(sw.Categorical(4, scored_as="bernoulli")),
        sw.Features(sw.Gaussian(4)),
    ],
    ids=["bernoulli", "categorical", "as-bernoulli", "gaussian"],
)
def test_extreme_outputs_stay_finite(features: sw.Features, loss: Any, impl: Any) -> None:
    """Logits of +-1e4 and probabilities of exactly 0 and 1, right and wrong ones."""
    signs = torch.tensor([[1.0, -1, -1, -1], [-1, 1, -1, -1], [1, 1, 1, 1], [-1, -1, -1, 1]])
    x = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 1]])
    probs = (signs > 0).float().requires_grad_()
    logits = (1e4 * signs).requires_grad_()
    for leaf, outputs in ((logits, logits), (probs, features.from_probs(probs))):
        value = loss(outputs, x, features, impl=impl)
        assert value.isfinite()
        (grad,) = torch.autograd.grad(value, leaf)
        assert grad.isfinite().all()


@pytest.mark.parametrize("features", [sw.Features(sw.Gaussian(3)), sw.Features(sw.Bernoulli(3))])
def test_outputs_that_are_not_valid_teach_no_temperature(features: sw.Features) -> None:
    z, x = torch.randn(5, 3), torch.rand(4, 3)
    learned = []
    for outputs, valid in ((z, torch.arange(5) < 3), (z[:3], None)):
        temperature = torch.tensor(0.7, requires_grad=True)
        options = {"temperature": temperature, "input_valid": valid}
        sw.set_cross_entropy(outputs, x, features, **options).backward()
        learned.append(temperature.grad)
    torch.testing.assert_close(*learned)


@pytest.mark.parametrize("impl", ["reference", "chunked"])
def test_the_temperature_may_be_a_tensor(impl: Any) -> None:
    """A replayed step reads it anew every time."""
    generator = torch.Generator().manual_seed(0)
    z, x = torch.randn(2, 3, 4, generator=generator), torch.rand(2, 5, 4, generator=generator)
    temperature = torch.tensor(1.0)
    for value in (1.0, 2.5, 0.1):
        temperature.fill_(value)
        results = []
        for given in (temperature, value):
            leaf = z.clone().requires_grad_()
            loss = sw.set_cross_entropy(leaf, x, temperature=given, impl=impl)
            results.append((loss.detach(), *torch.autograd.grad(loss, leaf)))
        torch.testing.assert_close(results[0], results[1])
    for bad in (torch.ones(1), torch.tensor(1)):
        with pytest.raises(ValueError, match="temperature: a tensor must hold one floating-point"):
            sw.set_cross_entropy(z, x, temperature=bad)
    with pytest.raises(ValueError, match=r"temperature: must lie between 1e-6 and 1e6, got -2\.0"):
        sw.set_cross_entropy(z, x, temperature=torch.tensor(-2.0))


def test_lengths_are_prefix_masks() -> None:
    z, x = torch.randn(2, 3, 4), torch.rand(2, 5, 4)
    lengths, mask = torch.tensor([2, 5]), torch.arange(5) < torch.tensor([[2], [5]])
    by_length = sw.set_cross_entropy(z, x, target_valid=lengths)
    assert by_length == sw.set_cross_entropy(z, x, target_valid=mask)


def test_reductions() -> None:
    z, x = torch.randn(2, 3, 4, 5), torch.rand(2, 3, 6, 5)
    each = sw.set_cross_entropy(z, x, reduction="none")
    assert each.shape == (2, 3)
    torch.testing.assert_close(sw.set_cross_entropy(z, x), each.mean())
    torch.testing.assert_close(sw.set_cross_entropy(z, x, reduction="sum"), each.sum())
