"""Losses of one matching through fused kernels, in the interpreter, against dense float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from fused_cases import ELEMENTS, known_tapes
from matched_cases import LOSSES, draw, judge, values_and_gradients
from setwise import values
from setwise.kernels import dispatch, few_steps, matched_losses, pair_costs

pytest.importorskip("triton")

from setwise.kernels import fused
from setwise.kernels.triton import small_losses, tapes

# Of inf - inf in what a solver does not use; and of sets that cost infinity, in float64.
pytestmark = [
    pytest.mark.slow,  # nearest elements and assignment have such kernels in the first tier
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:the loss is infinite:RuntimeWarning"),
]
SIZES = [(4, 4), (3, 5), (6, 4)]
CHOOSE, READABLE = dispatch.choose, values.are_readable


@pytest.fixture(autouse=True)
def on_a_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Float32 as if it were on a GPU: kernels serve it, and nothing is looked at."""
    found: list[str] = []
    honest = matched_losses.loss

    def choose(impl: Any, target: Tensor, logits: Tensor) -> Any:
        is_ours = logits.dtype == torch.float32 and impl == "auto"
        return "triton" if is_ours else CHOOSE(impl, target, logits)

    def counted(logits: Tensor, presence: Tensor | None, call: Any, again: Any) -> Tensor:
        found.append(call.search)
        return honest(logits, presence, call, again)

    monkeypatch.setattr(dispatch, "choose", choose)
    monkeypatch.setattr(few_steps, "pair_elements", lambda *_: None)
    monkeypatch.setattr(values, "are_readable", lambda t: t.dtype != torch.float32 and READABLE(t))
    monkeypatch.setattr(matched_losses, "loss", counted)
    tapes.forget()
    yield found
    tapes.forget()


@pytest.mark.parametrize("loss", LOSSES)
def test_boxes(loss: str, on_a_device: list[str]) -> None:
    judge(loss, "boxes", 3, 4, "presence", "target_valid", presence_weight=0.7)
    assert on_a_device == ["cheapest" if loss == "assignment" else "stable"]


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element(element: str) -> None:
    """Their costs are the same in a stable matching."""
    judge("assignment", element, 3, 4)
    judge("stable", element, 4, 3, "weight", "input_valid", reduction="mean")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("size", SIZES)
def test_every_option(size: tuple[int, int], loss: str) -> None:
    judge(loss, "categorical", *size, "input_valid")
    judge(loss, "categorical", *size, "target_valid", "weight")
    judge(loss, "categorical", *size, "input_valid", "target_valid", "presence")
    judge(loss, "categorical", *size, "presence", "weight", reduction="sum", presence_weight=0.3)


def test_a_matching_that_is_known(on_a_device: list[str]) -> None:
    """By costs of the caller's, or since sets are larger; in several programs a set."""
    costs = torch.rand(3, 3, 4, generator=torch.Generator().manual_seed(3))
    costs[0, :, 1:] = torch.inf  # one output for three targets
    judge("assignment", "boxes", 3, 4, "weight", "presence", matching_cost=costs)
    judge("assignment", "boxes", 3, 4, "presence", matching_cost=ELEMENTS["boxes"])
    for name in LOSSES:
        judge(name, "coordinates", 70, 130, "presence", "target_valid", "input_valid")
    assert on_a_device == ["known"] * 4


@pytest.mark.parametrize("loss", LOSSES)
def test_tapes(loss: str) -> None:
    """Of every kind of call, with the same bits; whatever tells calls apart keeps them so."""
    features, expected = ELEMENTS["few of two kinds"], []
    every = ("weight", "presence", "input_valid", "target_valid")
    kinds: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        ((), {}),
        (("presence",), {"reduction": "none"}),
        (("presence",), {"reduction": "none", "presence_weight": 0.5}),
        (("input_valid",), {}),
        (every, {}),
    ]

    def call(kind: tuple[tuple[str, ...], dict[str, Any]], seed: int = 0) -> list[Tensor]:
        options, given = kind
        z, x, more = draw(features, 2, 3, *options, B=2, seed=seed)
        return values_and_gradients(
            LOSSES[loss], z, x, torch.float32, features=features, **more, **given
        )

    for kind in kinds:
        tapes.forget()
        expected.append(call(kind))
    tapes.forget()
    for seed in (1, 2, 0):
        found = [call(kind, seed) for kind in kinds]
    assert known_tapes() == ["tape"] * len(kinds)
    for ours, alone in zip(found, expected, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(ours, alone, strict=True))


def test_arrays_of_any_layout_and_leading_dimensions() -> None:
    features = ELEMENTS["boxes"]
    z, x, given = draw(features, 4, 4, "presence", "weight", B=6)
    plain = sw.assignment_cross_entropy(z, x, features, reduction="none", **given)
    turned = {k: t.mT.contiguous().mT.reshape(2, 3, 4) for k, t in given.items()}
    z = z.permute(2, 1, 0).contiguous().permute(2, 1, 0).unflatten(0, (2, 3))
    x = x.permute(1, 2, 0).contiguous().permute(2, 0, 1).unflatten(0, (2, 3))
    value, matching = sw.assignment_cross_entropy(
        z, x, features, reduction="none", return_matching=True, **turned
    )
    assert torch.equal(value, plain.reshape(2, 3))
    assert torch.equal(matching.sort()[0], torch.arange(4).expand(2, 3, 4))


def test_other_derivatives() -> None:
    """Second ones, and those of several sums at once, are of the matching that was found."""
    features, found = ELEMENTS["boxes"], []
    z, x, given = draw(features, 3, 4, "presence", B=2)
    for dtype in (torch.float32, torch.float64):
        leaves = [z.to(dtype).requires_grad_(), given["presence"].to(dtype).requires_grad_()]
        value = sw.assignment_cross_entropy(
            leaves[0], x.to(dtype), features, presence=leaves[1], reduction="none"
        )
        first = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        second = torch.autograd.grad(
            torch.cat([slope.flatten() for slope in first]).square().sum(),
            leaves,
            retain_graph=True,
        )
        each = torch.autograd.grad(value, leaves, torch.eye(2, dtype=dtype), is_grads_batched=True)
        found.append([slope.detach().double() for slope in (*first, *second, *each)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own, of duals
def test_what_is_left_to_the_general_way(on_a_device: list[str]) -> None:
    features = ELEMENTS["points"]
    z, x, given = draw(features, 3, 4, "weight", "presence")
    sw.assignment_cross_entropy(z, x.requires_grad_(), features)
    x = x.detach()
    sw.assignment_cross_entropy(z, x, features, weight=given["weight"].requires_grad_())
    sw.assignment_cross_entropy(z, x.exp(), sw.Features(sw.Poisson(3)))
    torch.func.grad(lambda z: sw.assignment_cross_entropy(z, x, features))(z)
    with torch.autograd.forward_ad.dual_level():
        exists = torch.autograd.forward_ad.make_dual(given["presence"], given["presence"])
        sw.assignment_cross_entropy(z, x, features, presence=exists)
        weight = torch.autograd.forward_ad.make_dual(given["weight"].detach(), given["weight"])
        along = sw.assignment_cross_entropy(z, x, features, weight=weight)
        assert torch.autograd.forward_ad.unpack_dual(along).tangent is not None
    assert not on_a_device


@pytest.mark.parametrize("loss", LOSSES)
def test_what_cannot_be_compared_is_seen(loss: str) -> None:
    features = ELEMENTS["points"]
    z, x, _ = draw(features, 3, 4)
    z[1, 0, 0] = torch.nan
    value = LOSSES[loss](z.requires_grad_(), x, features, reduction="none")
    assert value.isfinite().tolist() == [True, False, True]
    assert torch.autograd.grad(value.sum(), z)[0][::2].isfinite().all()


def test_without_gradients() -> None:
    features = ELEMENTS["boxes"]
    z, x, given = draw(features, 3, 4, "presence")
    value = sw.assignment_cross_entropy(z.requires_grad_(), x, features, **given)
    with torch.no_grad():
        assert sw.assignment_cross_entropy(z, x, features, **given) == value
    exists = given["presence"].requires_grad_()
    value = sw.assignment_cross_entropy(z.detach(), x, features, presence=exists)
    (slope,) = torch.autograd.grad(value, exists)
    assert slope.abs().max() > 0


def test_small_sets_are_those_that_a_program_holds() -> None:
    most = matched_losses.SMALL_ELEMENTS, matched_losses.SMALL_FEATURES
    assert most == (small_losses.MAX_ELEMENTS, small_losses.MAX_FEATURES)
    assert matched_losses.MAX_FEATURES == fused.MAX_FEATURES


@pytest.mark.parametrize(("loss", "dynamic"), [("assignment", True), ("stable", False)])
def test_one_operator_inside_a_compiled_program(loss: str, dynamic: bool) -> None:
    features = ELEMENTS["boxes"]
    called: list[str] = []
    z, x, given = draw(features, 3, 4, "presence", "weight", "target_valid")
    exists = given.pop("presence").requires_grad_()
    z.requires_grad_()

    def watched(graph: Any, inputs: Any) -> Any:
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    def step(z: Tensor, exists: Tensor) -> Tensor:
        return LOSSES[loss](2 * z, x, features, presence=exists, reduction="none", **given)

    compiled = torch.compile(step, backend=watched, dynamic=dynamic, fullgraph=True)
    found = []
    for program in (compiled, step):
        value = program(z, exists)
        slopes = torch.autograd.grad((value * torch.tensor([1.0, 3.0, 2.0])).sum(), (z, exists))
        found.append([value.detach(), *slopes])
    torch.testing.assert_close(*found)
    with pytest.raises(RuntimeError, match="outside of what is compiled"):
        torch.autograd.grad(compiled(z, exists).sum(), z, create_graph=True)
    ours = [name for name in called if name.startswith("setwise")]
    assert ours == ["setwise.matched_loss.default"]


@pytest.mark.parametrize("element", ["boxes", "categorical as Bernoulli", "embeddings"])
def test_costs_of_all_pairs(element: str) -> None:
    """Of losses that have to know them all, with first and second derivatives, there and back."""
    features, found = ELEMENTS[element], []
    z, x, given = draw(features, 3, 4, "weight", B=2)
    assert pair_costs.fuses(x, z)
    for dtype in (torch.float32, torch.float64):
        leaf = z.to(dtype).requires_grad_()
        value = sw.transport_cross_entropy(
            leaf, x.to(dtype), features, weight=given["weight"].to(dtype), temperature=5.0
        )
        (first,) = torch.autograd.grad(value, leaf, retain_graph=True)
        (slope,) = torch.autograd.grad(value, leaf, create_graph=True)
        (second,) = torch.autograd.grad(slope.square().sum(), leaf)
        found.append([t.detach().double() for t in (value, first, slope, second)])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options", [(), ("weight",), ("weight", "input_valid", "target_valid")])
def test_earth_movers(options: tuple[str, ...], on_a_device: list[str]) -> None:
    """Distances, with a pair of points that have none, and sets of unequal numbers of points."""
    z, x, given = draw(ELEMENTS["points"], 5, 5, *options)
    z[0, 1] = x[0, 1]
    found, exact = (
        values_and_gradients(sw.earth_movers, z, x, dtype, reduction="none", **given)
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)
    assert on_a_device == ["cheapest"]


@pytest.mark.parametrize("lead", [(), (2, 3)])
def test_earth_movers_of_any_leading_dimensions(
    lead: tuple[int, ...], on_a_device: list[str]
) -> None:
    """With masks of unequal numbers of points; and with second derivatives."""
    generator, found = torch.Generator().manual_seed(0), []
    z, x = (torch.randn(*lead, 4, 2, generator=generator) for _ in range(2))
    outputs, targets = (torch.randint(2, 4, lead, generator=generator) for _ in range(2))
    masks = {"input_valid": outputs, "target_valid": targets}
    for dtype in (torch.float32, torch.float64):
        leaf = z.to(dtype).requires_grad_()
        each = sw.earth_movers(leaf, x.to(dtype), reduction="none", **masks)
        total = sw.earth_movers(leaf, x.to(dtype), reduction="sum")
        (slope,) = torch.autograd.grad(total, leaf, create_graph=True)
        first = torch.autograd.grad(torch.where(each.isfinite(), each, 0.0).sum(), leaf)
        second = torch.autograd.grad(slope.square().sum() + total, leaf)
        found.append([t.detach().double() for t in (each, total, slope, *first, *second)])
    assert each.shape == lead
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    assert on_a_device == ["cheapest"] * 2


def test_earth_movers_inside_a_compiled_program() -> None:
    called: list[str] = []
    z, x, given = draw(ELEMENTS["points"], 4, 4, "weight", "target_valid")

    def watched(graph: Any, inputs: Any) -> Any:
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = torch.compile(sw.earth_movers, backend=watched, fullgraph=True)
    found, exact = (
        values_and_gradients(program, z, x, dtype, reduction="none", **given)
        for program, dtype in ((compiled, torch.float32), (sw.earth_movers, torch.float64))
    )
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)
    assert [name for name in called if name.startswith("setwise")] == [
        "setwise.matched_loss.default"
    ]
