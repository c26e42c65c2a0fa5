"""Every loss by rows of the built-in families through the fused kernels, in the interpreter."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from fused_cases import ELEMENTS, LOSSES, compare_second_derivatives, count_losses, judge
from setwise.kernels import dispatch

pytest.importorskip("triton")

EACH = list(ELEMENTS)
SMALL, LARGE = (3, 5), (66, 9)  # one program a set, and loops over tiles


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("element", ["boxes", "categorical as Bernoulli"])
def test_small_sets(element: str, loss: str) -> None:
    judge(ELEMENTS[element], loss, *SMALL)


@pytest.mark.parametrize("loss", ["SH", "A1H", "H1H", "H1H in both directions"])
def test_loops_over_tiles(loss: str) -> None:
    """The others with every element below."""
    judge(ELEMENTS["boxes"], loss, *LARGE)


@pytest.mark.parametrize("loss", ["SH at a temperature", "A1H in both directions"])
@pytest.mark.parametrize("element", EACH)
def test_every_element(element: str, loss: str) -> None:
    judge(ELEMENTS[element], loss, *SMALL, masked=True)
    judge(ELEMENTS[element], loss, *LARGE)


@pytest.mark.slow  # some seconds; the unmasked calls of the first tier run the same kernels
@pytest.mark.parametrize("loss", ["SH", "A1H in both directions", "H1H in both directions"])
@pytest.mark.parametrize("element", ["points", "embeddings", "boxes"])
def test_masks_and_weights_in_large_sets(element: str, loss: str) -> None:
    judge(ELEMENTS[element], loss, *LARGE, masked=True, reduction="none")


@pytest.mark.usefixtures("tf32_allowed")
@pytest.mark.parametrize("element", ["boxes", "embeddings", "points", "categorical", "Bernoulli"])
def test_tf32(element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or float16, which has as many bits, for what is in its range.

    What memory held before is multiplied nowhere: an infinity there would be warned of.
    """
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **kind: infinite(empty(*size, **kind)))
    judge(ELEMENTS[element], "SH at a temperature", *LARGE, masked=True, tf32=True)
    judge(ELEMENTS[element], "A1H in both directions", *LARGE)


def infinite(memory: Tensor) -> Tensor:
    return memory.fill_(math.inf) if memory.is_floating_point() else memory


@pytest.mark.parametrize("width", [3, 6])
def test_targets_that_share_an_output_add_up_in_one_order(width: int) -> None:
    """And far from the origin their differences do not drown."""
    features = sw.Features(sw.Gaussian(width))
    x = 1e4 + torch.randn(1, 70, width)
    z = torch.cat([x[:, :1] + 0.01, 2e4 + torch.randn(1, 1, width)], dim=1)
    found = []
    for impl in ("triton", "triton", "reference"):
        leaf = (z if impl == "triton" else z.double()).clone().requires_grad_()
        value = sw.set_average(leaf, x.to(leaf), features, directed=False, impl=impl)  # type: ignore[arg-type]
        found.append((value.detach(), *torch.autograd.grad(value, leaf)))
    (value, gradient), same, exact = found
    assert value == same[0]
    assert torch.equal(gradient, same[1])
    torch.testing.assert_close((value.double(), gradient.double()), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("m", [4, 66])
def test_equally_bad_targets_share_the_gradient(m: int) -> None:
    x, z = torch.zeros(1, m, 2), torch.ones(1, 3, 2)
    leaves = []
    for impl in ("triton", "reference"):
        leaf = z.clone().requires_grad_()
        sw.hausdorff(leaf, x, sw.Features(sw.Gaussian(2)), directed=False, impl=impl).backward()  # type: ignore[arg-type]
        leaves.append(leaf.grad)
    torch.testing.assert_close(*leaves)


@pytest.mark.parametrize(("m", "losses"), [(4, LOSSES), (66, ["SH", "A1H in both directions"])])
def test_a_nan_is_seen(m: int, losses: list[str]) -> None:
    features = ELEMENTS["boxes"]
    z, x = torch.randn(2, 4, features.width), features.random_targets((2, m))
    with torch.no_grad():
        z[0, 1, 8] = torch.nan
        for loss, options in (LOSSES[name] for name in losses):
            # As on a GPU, where values are not looked at.
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("setwise.values.are_readable", lambda tensor: False)
                value = loss(z, x, features, impl="triton", reduction="none", **options)
            assert value[0].isnan(), loss.__name__
            assert value[1].isfinite(), loss.__name__


def test_second_derivatives_and_batched_gradients() -> None:
    """By the general way, of the same loss."""
    compare_second_derivatives("triton")


@pytest.fixture
def tf32_allowed() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.usefixtures("tf32_allowed")
@pytest.mark.parametrize(("weight", "temperature"), [(1.0, 0.01), (100.0, 1.0)])
def test_what_float16_cannot_hold_is_multiplied_in_tf32(weight: float, temperature: float) -> None:
    """The logarithm of a small probability, over a small temperature or times a large weight."""
    features = sw.Features(sw.Categorical(5, weight=weight))
    z = torch.zeros(1, 3, 5)
    z[..., 0] = 900.0
    x = features.from_classes(torch.ones(1, 66, 1, dtype=torch.long))
    value = sw.set_cross_entropy(z, x, features, temperature=temperature, impl="triton")
    assert value == pytest.approx(66 * (900 * weight - temperature * math.log(3)), rel=1e-3)


@pytest.mark.usefixtures("tf32_allowed")
@pytest.mark.parametrize("scale", [10.0, 3e3, 1e9])
@pytest.mark.parametrize("weight", [0.5, 20.0])
@pytest.mark.parametrize(
    "family", [sw.Bernoulli(6), sw.Categorical(6, scored_as="bernoulli")], ids=["each", "choice"]
)
def test_confident_outputs_cost_nothing(family: Any, weight: float, scale: float) -> None:
    """What is rounded off their keys, or cut off, is so off what it is subtracted from."""
    features = sw.Features(replace(family, weight=weight))
    z = scale * torch.eye(6).mul(2).sub(1).unsqueeze(0)
    x = (z[:, torch.arange(66) % 6] > 0).float()
    found = []
    for impl, dtype in (("triton", torch.float32), ("reference", torch.float64)):
        found.append(
            sw.set_cross_entropy(z.to(dtype), x.to(dtype), features, temperature=2.0, impl=impl)  # type: ignore[arg-type]
        )
    torch.testing.assert_close(found[0].double(), found[1], rtol=1e-3, atol=1e-3)


def _served(monkeypatch: pytest.MonkeyPatch, features: Any, **options: Any) -> bool:
    modes = count_losses(monkeypatch)
    width = 3 if features is None else features.width
    z = torch.randn(2, 4, width, requires_grad=True)
    x = torch.full((2, 4, width), 0.5, requires_grad=options.pop("to_target", False))
    given = {"temperature": 2.0, "impl": "triton", **options}
    sw.set_cross_entropy(z, x, features, **given).sum().backward()
    monkeypatch.undo()
    return bool(modes)


class Own(sw.Gaussian):
    """May have changed anything."""


@pytest.mark.parametrize("element", EACH)
def test_built_in_families_are_served(element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no call leaves the fast path and nobody notices."""
    features = ELEMENTS[element]
    on_device = {"temperature": torch.tensor(2.0), "weight": torch.rand(2, 4)}
    assert _served(monkeypatch, features, input_valid=torch.tensor([4, 2]), **on_device)
    # In full precision embeddings are compared, by other kernels.
    monkeypatch.setattr(dispatch, "tf32_is_allowed", lambda: True)
    for M, N in ((9, 9), (300, 300), (4096, 100)):
        x, z = torch.empty(2, M, features.width), torch.empty(2, N, features.width)
        assert dispatch.fuses("triton", features.kernel, "soft", x, z)
        assert dispatch.fuses("triton", features.kernel, "worst", x, z)


def test_what_is_left_to_the_general_way(monkeypatch: pytest.MonkeyPatch) -> None:
    points = sw.Features(sw.Gaussian(3))
    assert not _served(monkeypatch, sw.Features(Own(3)))
    assert not _served(monkeypatch, sw.Features(sw.Poisson(3)))
    assert not _served(monkeypatch, sw.Features(sw.Gaussian(2), sw.Angle(1)))
    assert not _served(monkeypatch, points, to_target=True)
    assert not _served(monkeypatch, points, weight=torch.rand(2, 4, requires_grad=True))
    assert not _served(monkeypatch, points, temperature=torch.tensor(2.0, requires_grad=True))
    assert not _served(monkeypatch, points, presence=torch.zeros(2, 4))
    assert not _served(monkeypatch, points, impl="chunked")
    assert not _served(monkeypatch, None, temperature=1.0)  # plain Bernoulli: its own kernels


def test_coordinates_are_compared_unless_digits_may_be_lost() -> None:
    """More than fused kernels compare are multiplied there, if that is to be fast."""
    kernel = sw.Features(sw.Gaussian(20)).kernel
    sets = torch.zeros(2, 99, 20), torch.zeros(2, 99, 20)
    assert not dispatch.fuses("triton", kernel, "soft", *sets)
    assert dispatch.compares("triton", *sets, 20)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert dispatch.fuses("triton", kernel, "soft", *sets)
        assert not dispatch.compares("triton", *sets, 20)
    finally:
        torch.set_float32_matmul_precision(before)


def test_a_temperature_on_another_device_is_left_to_the_general_way() -> None:
    """A kernel would read at an address of the host."""
    points, elsewhere = sw.Features(sw.Gaussian(3)).kernel, torch.ones((), device="meta")
    sets = torch.zeros(2, 9, 3), torch.zeros(2, 9, 3)
    assert dispatch.fuses("triton", points, "soft", *sets, torch.ones(()))
    assert not dispatch.fuses("triton", points, "soft", *sets, elsewhere)


def test_large_clouds_are_left_to_what_searches_them() -> None:
    points = sw.Features(sw.Gaussian(3)).kernel
    one = torch.zeros(1, 1, 1)
    assert dispatch.fuses("triton", points, "soft", *2 * [one.expand(1, 2**16, 3)])
    assert not dispatch.fuses("triton", points, "mean", *2 * [one.expand(1, 2**16, 3)])
    assert not dispatch.fuses("triton", points, "soft", *2 * [one.expand(4, 2**16, 3)])


def test_transforms_see_the_general_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = count_losses(monkeypatch)
    points = sw.Features(sw.Gaussian(3))
    z, x = torch.randn(2, 4, 3), torch.randn(2, 4, 3)

    def loss(z: Tensor) -> Tensor:
        return sw.set_average(z, x, points, impl="triton")

    torch.func.grad(loss)(z)
    assert not modes
    loss(z)
    assert modes == ["mean"]


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("element", ["Bernoulli", "points", "plain Bernoulli"])
def test_the_type_of_new_tensors_is_of_no_account(element: str, size: tuple[int, int]) -> None:
    """What kernels leave for each other is of float32, and so is the loss of float32."""
    features = sw.Features(sw.Bernoulli(9)) if element == "plain Bernoulli" else ELEMENTS[element]
    generator = torch.Generator().manual_seed(0)
    (M, N), found = size, []
    z = torch.randn(2, N, features.width, generator=generator, requires_grad=True)
    x = features.random_targets((2, M), generator)
    try:
        for kind in (torch.float32, torch.float64, torch.bfloat16):
            torch.set_default_dtype(kind)
            value = sw.set_cross_entropy(z, x, features, impl="triton")
            found.append((value.detach(), *torch.autograd.grad(value, z)))
    finally:
        torch.set_default_dtype(torch.float32)
    for value, gradient in found[1:]:
        assert value.dtype == torch.float32
        assert torch.equal(value, found[0][0])
        assert torch.equal(gradient, found[0][1])


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("loss", ["SH at a temperature on the device", "H1H in both directions"])
def test_one_operator_inside_a_compiled_program(
    loss: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Found by an import, which is no part of a compiled call on a device.
    monkeypatch.setattr(dispatch, "_interprets", lambda: True)
    (function, options), features = LOSSES[loss], ELEMENTS["boxes"]
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, 5, features.width, generator=generator, requires_grad=True)
    x = features.random_targets((2, 4), generator)
    masks = {"input_valid": torch.tensor([5, 2]), "weight": torch.rand(2, 4, generator=generator)}
    called: list[str] = []

    def watched(graph: Any, inputs: Any) -> Any:
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    def step(z: Tensor, impl: str) -> Tensor:
        return function(2 * z, x, features, impl=impl, reduction="none", **masks, **options)

    compiled = torch.compile(step, backend=watched, dynamic=dynamic, fullgraph=True)
    found = []
    for value in (compiled(z, "triton"), step(z, "reference")):
        (slope,) = torch.autograd.grad((value * torch.tensor([1.0, 3.0])).sum(), z)
        found.append((value.detach(), slope))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="outside of what is compiled"):
        torch.autograd.grad(compiled(z, "triton").sum(), z, create_graph=True)
    assert [name for name in called if name.startswith("setwise")] == ["setwise.row_loss.default"]


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "whole"), [("SH", True), ("A1H", False)])
def test_large_sets_inside_a_compiled_program(
    loss: str, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A soft loss stays one operator, as it is in an eager call; nearest elements are sorted."""
    monkeypatch.setattr(dispatch, "_interprets", lambda: True)
    monkeypatch.setattr(dispatch, "MOST_SHARED", 19)
    (function, options), features = LOSSES[loss], ELEMENTS["boxes"]
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(1, 5, features.width, generator=generator, requires_grad=True)
    x = features.random_targets((1, 4), generator)
    called: list[str] = []

    def watched(graph: Any, inputs: Any) -> Any:
        called.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    def step(z: Tensor, impl: str) -> Tensor:
        return function(2 * z, x, features, impl=impl, **options)

    found = torch.compile(step, backend=watched, fullgraph=True)(z, "triton")
    torch.testing.assert_close(found, step(z, "reference"), rtol=1e-4, atol=1e-5)
    assert ("setwise.row_loss.default" in called) == whole


@pytest.mark.slow
def test_compiled_programs_follow_the_precision_that_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Embeddings are multiplied where tf32 is allowed and compared where it is not, then as now."""
    monkeypatch.setattr(dispatch, "_interprets", lambda: True)
    features = ELEMENTS["embeddings"]
    called: list[str] = []
    z = torch.randn(1, 5, features.width, generator=torch.Generator().manual_seed(0))
    z.requires_grad_()
    x = 50 + torch.randn(1, 66, features.width, generator=torch.Generator().manual_seed(1))

    def watched(graph: Any, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            called.extend(str(node.target) for node in graph.graph.nodes)
            return graph(*args)

        return run

    def step(z: Tensor) -> Tensor:
        return sw.set_cross_entropy(z + 50, x, features, impl="triton")

    compiled = torch.compile(step, backend=watched, fullgraph=True)
    exact = sw.set_cross_entropy(z.double() + 50, x.double(), features, impl="reference")
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "medium", "highest", "high"):
            torch.set_float32_matmul_precision(precision)
            called.clear()
            value = compiled(z)
            multiplied = "setwise.row_loss.default" in called
            assert multiplied == (precision != "highest")
            off = (value.detach().double() - exact).abs() / exact
            assert off < (2e-3 if multiplied else 1e-6)
    finally:
        torch.set_float32_matmul_precision(before)
