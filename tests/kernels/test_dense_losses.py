"""Every loss by rows of the built-in families on a CPU, in few steps and with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import setwise as sw
from far_points import FAR, FEATURES, PAIRWISE, dense_costs
from far_points import judge as judge_far
from fused_cases import ELEMENTS, LOSSES, compare_second_derivatives, count_losses, judge
from setwise.kernels import arrays, dense_losses, few_steps

FIRST = ["SH at a temperature", "A1H in both directions", "H1H in both directions"]
OTHERS = [loss for loss in LOSSES if loss not in FIRST]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The modes of the losses that are computed so from now on."""
    return count_losses(monkeypatch, few_steps, "row_loss")


@pytest.mark.parametrize(
    "loss", [*FIRST, *(pytest.param(o, marks=pytest.mark.slow) for o in OTHERS)]
)
@pytest.mark.parametrize("element", ELEMENTS)
def test_agreement(element: str, loss: str, served: list[str]) -> None:
    judge(ELEMENTS[element], loss, 3, 5, impl="auto")
    judge(ELEMENTS[element], loss, 6, 4, impl="auto", masked=True, reduction="none")
    assert len(served) == 2


@pytest.mark.parametrize("has_mkl", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("loss", FIRST)
def test_tiles_and_large_arrays(loss: str, has_mkl: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if sets were large: PyTorch computes, of some sets, and of some targets, at a time."""
    for size in ("MANY", "MANY_POWERS", "MANY_COMPARED", "FEW_PRODUCTS", "MANY_PRODUCTS"):
        monkeypatch.setattr(arrays, size, 0)
    monkeypatch.setattr(arrays, "HAS_MKL", has_mkl)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for element in ("boxes", "categorical as Bernoulli"):
        judge(ELEMENTS[element], loss, 7, 5, impl="auto", masked=True)
        with monkeypatch.context() as patch:
            patch.setattr(dense_losses, "TILE_SCORES", 10)
            patch.setattr(dense_losses, "FEWEST_TARGETS", 1)
            judge(ELEMENTS[element], loss, 7, 5, impl="auto", masked=True)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("loss", [sw.set_cross_entropy, sw.set_average, sw.hausdorff])
@pytest.mark.parametrize("masked", [False, True])
def test_with_presence(loss: Any, element: str, masked: bool, served: list[str]) -> None:
    """Values, and gradients to outputs and to their existence, as of the general way."""
    features, generator = ELEMENTS[element], torch.Generator().manual_seed(0)
    x = features.random_targets((6, 4), generator)
    z = torch.randn(6, 7, features.width, generator=generator)
    exists = 3 * torch.randn(6, 7, generator=generator)
    options: dict[str, Any] = {"presence_weight": 0.7, "reduction": "none"}
    if masked:
        options["target_valid"] = torch.tensor([0, 1, 2, 3, 4, 4])
        options["input_valid"] = torch.tensor([7, 0, 5, 2, 7, 4])  # of one not enough
        options["weight"] = torch.rand(6, 4, generator=generator)
    if loss is sw.set_cross_entropy:
        options["temperature"] = 1.7
    found: list[list[torch.Tensor]] = []
    for dtype, impl in ((torch.float32, "auto"), (torch.float64, "reference")):
        leaves = [t.to(dtype).requires_grad_() for t in (z, exists)]
        given = {name: t.to(dtype) if name == "weight" else t for name, t in options.items()}
        losses = loss(leaves[0], x.to(dtype), features, presence=leaves[1], impl=impl, **given)
        total = losses[losses.isfinite()].square().sum()  # each set counts another time
        found.append([losses, *torch.autograd.grad(total, leaves)])
        assert len(served) == 1
    for ours, right in zip(*found, strict=True):
        largest = right.detach()[right.isfinite()].abs().max().item()
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-5 * largest)


def test_presence_that_is_computed_from_the_outputs(served: list[str]) -> None:
    """The gradient to outputs is to be told apart from that which goes through their presence."""
    z, x = torch.randn(2, 4, 3, dtype=torch.float64), torch.rand(2, 3, 3).double()
    found = []
    for create_graph in (False, True):
        leaf = z.clone().requires_grad_()
        outputs = 1 * leaf
        loss = sw.set_cross_entropy(outputs, x, presence=outputs.sum(-1))
        found.append(torch.autograd.grad(loss, leaf, create_graph=create_graph)[0])
    torch.testing.assert_close(*found)
    assert len(served) == 2


def test_second_derivatives_with_presence(served: list[str]) -> None:
    z, exists = (torch.randn(2, 4, *size).double().requires_grad_() for size in ((3,), ()))
    x = torch.rand(2, 3, 3).double()

    def loss(z: torch.Tensor, exists: torch.Tensor) -> torch.Tensor:
        return sw.set_cross_entropy(z, x, presence=exists)

    assert gradcheck(loss, (z, exists))
    assert gradgradcheck(loss, (z, exists))
    assert set(served) == {"soft"}


# Between them, float32 is no longer enough for products.
@pytest.mark.parametrize("far", [*FAR, 3.0, 10.0, 30.0])
@pytest.mark.parametrize("loss", PAIRWISE)
def test_far_points(loss: str, far: float, served: list[str]) -> None:
    for features in FEATURES.values():
        judge_far(features, PAIRWISE[loss], far, impl="auto", of_targets=False)
    assert served


@pytest.mark.parametrize("loss", PAIRWISE)
def test_products_are_in_full_precision(
    loss: str, set_precision: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever PyTorch may do: some processors multiply in bfloat16 then."""
    set_precision("medium")
    monkeypatch.setattr(arrays, "MANY_PRODUCTS", 0)
    monkeypatch.setattr(arrays, "FEW_PRODUCTS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for features in FEATURES.values():
        judge_far(features, PAIRWISE[loss], 0.3, impl="auto", of_targets=False)


HARD = [
    sw.set_average,
    partial(sw.set_average, directed=False),
    sw.hausdorff,
    sw.assignment_cross_entropy,
    sw.stable_matching_cross_entropy,
]


@pytest.mark.parametrize("places", [[1.0], [3.0], [1.0, -1.0], [3.0, -3.0]], ids=str)
@pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("masked", [False, True])
def test_tight_clusters(places: list[float], spread: float, masked: bool) -> None:
    """Which is the nearest, where all in a cluster are near beside how far it reaches."""
    features, generator = sw.Features(sw.Gaussian(3)), torch.Generator().manual_seed(0)
    place = torch.tensor(places).repeat(40 // len(places))[:, None]
    x, z = (place + spread * torch.randn(4, 40, 3, generator=generator) for _ in range(2))
    valid: Any = {"target_valid": torch.tensor([40, 30, 11, 0])} if masked else {}
    for loss in HARD:
        found = []
        for dtype in (torch.float32, torch.float64):
            leaf = z.to(dtype).requires_grad_()
            value = loss(leaf, x.to(dtype), features, reduction="none", **valid)
            value = value[value.isfinite()]
            found.append((value.detach(), *torch.autograd.grad(value.sum(), leaf)))
        for ours, right in zip(*found, strict=True):
            error = (ours.double() - right).abs().max() / right.abs().max()
            assert error < 1e-5


def test_how_far_apart_points_may_be(served: list[str]) -> None:
    """In float64 from some distance on; further, coordinates are compared one by one."""
    features = sw.Features(sw.Gaussian(3, scale=0.01))
    generator = torch.Generator().manual_seed(0)
    for apart, modes in ((0.1, 1), (1e3, 1), (1e7, 0)):
        served.clear()
        x = torch.rand(1, 6, 3, generator=generator)
        x[:, ::2] += apart
        z = x + 0.01 * torch.randn(1, 6, 3, generator=generator)
        found, exact = (
            sw.set_cross_entropy(z.to(dtype), x.to(dtype), features, impl=impl)  # type: ignore[arg-type]
            for dtype, impl in ((torch.float32, "auto"), (torch.float64, "chunked"))
        )
        assert len(served) == modes
        assert found.item() == pytest.approx(exact.item(), rel=1e-4, abs=1e-4)


@pytest.mark.slow  # beside test_far_points, of shapes that are rare
@pytest.mark.parametrize("loss", [loss for loss in PAIRWISE if loss != "set, cold"])
def test_costs_as_large_as_their_terms(loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all are far from each other, float32 loses no more than of differences."""
    types: list[str] = []
    computed = dense_losses.computed

    def noted(call: Any, elements: Any, *rest: Any) -> Any:
        types.append(str(elements.keys.dtype))
        return computed(call, elements, *rest)

    monkeypatch.setattr(dense_losses, "computed", noted)
    function, options, of_costs = PAIRWISE[loss]
    features, generator = sw.Features(sw.Gaussian(400)), torch.Generator().manual_seed(0)
    x = torch.randn(2, 30, 400, generator=generator) * 1.2
    for apart, kind in ((1.0, "float32"), (0.2, "float64")):
        z = x[:, :20] * (1 - apart) + torch.randn(2, 20, 400, generator=generator) * apart
        found = []
        for exactly in (None, torch.float32, torch.float64):
            leaf = z.to(exactly or torch.float32).requires_grad_()
            if exactly is None:
                value = function(leaf, x, features, reduction="none", **options)
            else:
                pairs = zip(leaf, x.to(exactly), strict=True)
                value = torch.stack([of_costs(dense_costs(features, *pair)) for pair in pairs])
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
            found.append((value.detach().double(), gradient.double()))
        assert types.pop() == kind
        for ours, dense, exact in zip(*found, strict=True):
            errors = [(t - exact).abs().max() / exact.abs().max() for t in (ours, dense)]
            assert errors[0] <= errors[1] + 1e-5


@pytest.mark.slow  # test_agreement is of the same costs, where less cancels
@pytest.mark.parametrize("directed", [True, False])
def test_costs_are_not_read_off_scores_that_cancel(directed: bool) -> None:
    x = torch.randint(2, (3, 4, 100), generator=torch.Generator().manual_seed(0)).float()
    z = 1000 * (2 * x - 1)
    z[..., 0] *= -1e-3  # the one wrong feature, by 1 of terms that add up to some 50,000
    for loss in (sw.set_average, sw.hausdorff):
        found, exact = (loss(z.to(t), x.to(t), directed=directed) for t in (z.dtype, torch.double))
        assert found.item() == pytest.approx(exact.item(), rel=1e-6)


def test_the_worst_of_some_sets_are_shared_and_of_others_in_the_other_direction() -> None:
    """As many targets as sets are the worst, but both of one set."""
    points = sw.Features(sw.Gaussian(1))
    x = torch.tensor([[0.0, 0.5, 1.0], [0.0, 0.0, 10.0]])[..., None]
    z = torch.tensor([[0.0, 9.0], [4.0, 11.0]])[..., None].requires_grad_()
    sw.hausdorff(z, x, points, directed=False, reduction="sum").backward()
    assert z.grad is not None
    assert z.grad[..., 0].tolist() == [[0.0, 8.0], [4.0, 0.0]]


@pytest.mark.parametrize("loss", [sw.set_average, sw.hausdorff])
def test_terms_that_overflow(loss: Any) -> None:
    """As the general way has it, however many there are."""
    x = torch.randint(2, (1, 130, 4), generator=torch.Generator().manual_seed(0)).float()
    z = 3e38 * (2 * x.flip(1) - 1)
    for n in (5, 130):
        found, other = (loss(z[:, :n], x, directed=False, impl=i) for i in ("auto", "reference"))
        assert found == other == torch.inf


def test_what_is_left_to_the_general_way(served: list[str]) -> None:
    z, x = torch.randn(2, 4, 3, requires_grad=True), torch.rand(2, 4, 3)
    sw.set_average(z, x)
    assert served == ["mean"]
    served.clear()
    sw.set_average(z, x, impl="reference")
    sw.set_average(z, x, impl="chunked")
    sw.set_average(z, x, sw.Features(sw.Poisson(3)))
    sw.set_average(z, x.clone().requires_grad_())
    sw.set_average(z, x, weight=torch.rand(2, 4, requires_grad=True))
    sw.set_average(z, x, directed=False, presence=torch.zeros(2, 4))
    torch.func.grad(lambda z: sw.set_average(z, x))(z.detach())
    points = torch.rand(1, 1000, 3)
    sw.chamfer(points, points)  # trees
    assert not served
    with torch.no_grad():
        sw.set_average(z, x.clone().requires_grad_())
    assert served == ["mean"]


def test_second_derivatives_and_batched_gradients() -> None:
    compare_second_derivatives("auto")


def test_a_gradient_that_is_ready_is_handed_out_once() -> None:
    """Whoever has it may write to it, also while the graph is kept for another."""
    z, x = torch.randn(4, 5, 3, requires_grad=True), torch.rand(4, 5, 3)
    loss = sw.set_average(z, x)
    (first,) = torch.autograd.grad(loss, z, retain_graph=True)
    right = first.clone()
    first.zero_()
    (second,) = torch.autograd.grad(loss, z, retain_graph=True)
    torch.testing.assert_close(second, right, rtol=0, atol=0)
    second.zero_()
    (2 * loss).backward()
    torch.testing.assert_close(z.grad, 2 * right, rtol=0, atol=0)
    for _ in range(2):
        sw.set_average(z, x).backward()
    torch.testing.assert_close(z.grad, 4 * right)
