"""Each family in every loss and engine, metric, mask and network, alone and beside others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from family_cases import CASES, ENGINES, LOSSES, Case, defined_loss, run_loss
from setwise import metrics
from setwise.models import BinaryConcrete, SetAutoencoder, find_prototypes, start_at_prototypes

every = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
every_loss = pytest.mark.parametrize("loss", LOSSES)
every_engine = pytest.mark.parametrize(("loss", "impl"), ENGINES)
METRICS = [metrics.set_success, metrics.multiset_equality, metrics.matched_error]
ALL = sw.Features(*(case.family for case in CASES.values()))


def precise(impl: str | None) -> tuple[torch.dtype, float]:
    """The type an engine can compute in, and how exact it then is."""
    return (torch.float32, 2e-4) if impl == "triton" else (torch.float64, 1e-9)


@every
@every_engine
def test_losses_are_those_of_the_costs(case: Case, loss: str, impl: str | None) -> None:
    y, x = case.logits(3, 5, seed=1), case.targets(3, 5, seed=2)
    dtype, close = precise(impl)
    found = run_loss(loss, impl, y.to(dtype), x.to(dtype), case.features)
    expected = defined_loss(loss, case.costs(y, x))
    torch.testing.assert_close(found.double(), expected, rtol=close, atol=close)


@every
@every_engine
def test_gradients_are_those_of_the_dense_engine(case: Case, loss: str, impl: str | None) -> None:
    """To outputs and to targets; with masks, whose hidden elements get none."""
    dtype, close = precise(impl)
    valid = torch.tensor([[True, True, False, True], [False, True, True, False]])
    found = []
    for kind, engine in ((dtype, impl), (torch.float64, impl and "reference")):
        y = case.logits(2, 4, seed=1).to(kind).requires_grad_()
        x = (0.8 * case.targets(2, 4, seed=2) + 0.1).to(kind).requires_grad_()
        value = run_loss(loss, engine, y, x, case.features, input_valid=valid, target_valid=valid)
        found.append([g.double() for g in torch.autograd.grad(value.sum(), (y, x))])
    for ours, dense in zip(*found, strict=True):
        torch.testing.assert_close(ours, dense, rtol=10 * close, atol=10 * close)
        assert ours[valid].abs().sum() > 0
        assert ours[~valid].eq(0).all()


@every
@every_loss
def test_masked_sets_cost_what_the_bare_sets_cost(case: Case, loss: str) -> None:
    y, x = case.logits(2, 5, seed=1), case.targets(2, 5, seed=2)
    lengths = torch.tensor([3, 5])
    x[0, 3:] = y[0, 3:] = math.nan  # hidden, and no number
    masks = {"input_valid": lengths, "target_valid": lengths}
    impl = None if (loss, None) in ENGINES else "chunked"
    found = run_loss(loss, impl, y, x, case.features, **masks)
    for one, (n, value) in enumerate(zip(lengths.tolist(), found, strict=True)):
        expected = defined_loss(loss, case.costs(y[one, :n], x[one, :n]).unsqueeze(0))[0]
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-9)


@every
@every_loss
def test_the_order_does_not_matter(case: Case, loss: str) -> None:
    y, x = case.logits(4, 6, seed=1), case.targets(4, 6, seed=2)
    generator = torch.Generator().manual_seed(0)
    orders = torch.randperm(6, generator=generator), torch.randperm(6, generator=generator)
    if loss == "ordered":
        orders = (orders[0], orders[0])
    impl = None if (loss, None) in ENGINES else "auto"
    found = run_loss(loss, impl, y[:, orders[0]], x[:, orders[1]], case.features)
    expected = run_loss(loss, impl, y, x, case.features)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@every_engine
def test_all_families_in_one_element(loss: str, impl: str | None) -> None:
    """Their costs add up, each times its weight, and no statistic runs into the next."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randn(2, 4, ALL.width, generator=generator, dtype=torch.float64)
    x = ALL.random_targets((2, 4), generator).double()
    parts = zip(CASES.values(), ALL.split(y), ALL.split(x), strict=True)
    costs = torch.stack([case.costs(b, a) for case, b, a in parts]).sum(0)
    dtype, close = precise(impl)
    found = run_loss(loss, impl, y.to(dtype), x.to(dtype), ALL)
    torch.testing.assert_close(found.double(), defined_loss(loss, costs), rtol=close, atol=close)


@every
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_types(case: Case, dtype: torch.dtype) -> None:
    """Numbers of 16 bits are computed with in float32: only they themselves are rounded."""
    y, x = case.logits(2, 5, seed=1).to(dtype), case.targets(2, 5, seed=2).to(dtype)
    value = sw.set_cross_entropy(y, x, case.features, reduction="none")
    assert value.dtype == torch.float32
    expected = defined_loss("set", case.costs(y.double(), x.double()))
    torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "case",
    [
        # Half a second each: the first tier has the plainest, and one whose statistic is another.
        pytest.param(
            case, id=name, marks=() if name in ("bernoulli", "angle") else pytest.mark.slow
        )
        for name, case in CASES.items()
    ],
)
def test_compiled_and_transformed(case: Case) -> None:
    y, x = case.logits(2, 3, seed=1), case.targets(2, 3, seed=2)

    def loss(y: Tensor, x: Tensor) -> Tensor:
        return sw.set_cross_entropy(y, x, case.features)

    compiled: Any = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(y, x), loss(y, x))
    one_by_one = torch.vmap(torch.func.grad(loss))(y, x)
    leaf = y.clone().requires_grad_()
    (together,) = torch.autograd.grad(loss(leaf, x), leaf)
    torch.testing.assert_close(one_by_one / 2, together)  # the mean of two sets


@every
@pytest.mark.parametrize("metric", METRICS)
def test_metrics_of_right_and_wrong_answers(case: Case, metric: Callable[..., Tensor]) -> None:
    drawn = case.targets(60).unique(dim=0)
    x = drawn[torch.linspace(0, len(drawn) - 1, 3).long()].unsqueeze(0)  # three that differ
    y = case.features.from_probs(x.flip(1))
    best = 0.0 if metric is metrics.matched_error else 1.0
    assert metric(y, x, case.features).item() == pytest.approx(best, abs=1e-12)
    wrong = torch.cat([y[:, :2], y[:, :1]], dim=1)  # one target is not answered
    answers = case.features.discretise(wrong)
    pairs = case.error(*torch.broadcast_tensors(x.unsqueeze(2), answers.unsqueeze(1)))
    error = defined_loss("assignment", pairs).item() / 3
    expected = error if metric is metrics.matched_error else 0.0
    assert error > 0
    assert metric(wrong, x, case.features).item() == pytest.approx(expected, rel=1e-9)


@every
def test_the_tolerance_is_for_continuous_features(case: Case) -> None:
    drawn = case.targets(60).unique(dim=0)
    x, other = drawn[:1], drawn[-1:]
    right, wrong = case.features.from_probs(x), case.features.from_probs(other)
    for metric in METRICS[:2]:
        assert metric(right, x, case.features) == 1.0
        assert metric(wrong, x, case.features) == 0.0
        assert metric(wrong, x, case.features, tolerance=10.0) == float(case.tolerant)


@every
def test_metrics_as_classes(case: Case) -> None:
    x = case.targets(4, 3)
    metric = metrics.SetSuccess(case.features)
    metric.update(case.features.from_probs(x), x)
    assert metric.compute() == 1.0


@dataclass(frozen=True)
class Positive(sw.Gaussian):
    """Logarithms of positive numbers are Gaussian: at 0, where masks put targets, they end."""

    target_range = (1e-30, math.inf)
    target_rule = "must be positive"
    blank = 1.0

    def statistic(self, target: Tensor) -> Tensor:
        return target.log()

    def base(self, target: Tensor) -> Tensor:
        return super().base(target.log())

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        return super().cost(logits, target.log())


@every_loss
def test_hidden_targets_hold_what_the_family_allows(loss: str) -> None:
    numbers = sw.Features(sw.Bernoulli(1), Positive(2), sw.Poisson(1))
    assert numbers.blank is not None
    assert numbers.blank.tolist() == [0.0, 1.0, 1.0, 0.0]
    logs = sw.Features(sw.Bernoulli(1), sw.Gaussian(2), sw.Poisson(1))
    assert logs.blank is None
    x = logs.random_targets((2, 4), torch.Generator().manual_seed(0)).double()
    positive = torch.cat([x[..., :1], x[..., 1:3].exp(), x[..., 3:]], dim=-1)
    lengths = torch.tensor([2, 0])
    positive[0, 2:], positive[1] = 0.0, -math.inf
    found = []
    for features, target in ((numbers, positive), (logs, x)):
        y = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        target, leaf = target.requires_grad_(), y.requires_grad_()
        masks = {"input_valid": lengths, "target_valid": lengths}
        impl = None if (loss, None) in ENGINES else "auto"
        value = run_loss(loss, impl, leaf, target, features, **masks)
        gradients = torch.autograd.grad(value.sum(), (leaf, target))
        assert gradients[1].isfinite().all()
        found.append((value.detach(), gradients[0]))
    torch.testing.assert_close(found[0], found[1])


@every
def test_an_autoencoder_learns(case: Case) -> None:
    """From its prototypes on: the loss falls, on whichever family."""
    torch.manual_seed(0)
    sets = case.targets(40, 2, seed=3).float()
    model = SetAutoencoder(2, case.features, BinaryConcrete(8), (32,), (32,), 32, dropout=0.0)
    start_at_prototypes(model, sets, case.features)
    bias = model.decoder.output.bias.unflatten(0, (2, -1))
    prototypes = find_prototypes(sets, case.features)
    torch.testing.assert_close(bias, case.family.soft_logits(prototypes), rtol=1e-5, atol=1e-5)
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    history = []
    for _ in range(60):
        loss = sw.set_cross_entropy(model(sets), sets, case.features)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        history.append(loss.item())
    assert sum(history[-5:]) < sum(history[:5]) - 0.05 * abs(sum(history[:5]))


def test_prototypes_of_angles_on_both_sides_of_pi() -> None:
    """Their plain mean would lie on the far side of the circle."""
    generator = torch.Generator().manual_seed(0)
    noise = 0.1 * torch.randn(50, 2, 1, generator=generator)
    sets = sw.shuffle_sets(torch.tensor([[math.pi], [0.5]]) + noise, generator)
    features = sw.Features(sw.Angle(1, concentration=5.0))
    found = find_prototypes(features.discretise(sets), features)
    away = sw.Angle(1).error(torch.tensor([[math.pi], [0.5]]), found).amin(-1)
    assert away.amax() < 0.05
