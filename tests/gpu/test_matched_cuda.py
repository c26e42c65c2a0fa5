"""Losses of one matching by fused kernels, compiled; tests/kernels interprets them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from fused_cases import ELEMENTS, known_tapes
from matched_cases import LOSSES, draw, judge, values_and_gradients

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.filterwarnings("ignore:the loss is infinite:RuntimeWarning"),
]
EVERY = ("weight", "presence", "input_valid", "target_valid")
SIZES = [(9, 9), (3, 5), (6, 4), (64, 50), (1, 1), (70, 130)]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    from setwise.kernels.triton import tapes

    tapes.forget()
    yield
    tapes.forget()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element(element: str, loss: str) -> None:
    judge(loss, element, 7, 9, *EVERY, device="cuda", presence_weight=0.7)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_size(loss: str, size: tuple[int, int]) -> None:
    judge(loss, "boxes", *size, device="cuda")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", [(), EVERY], ids=["plain", "every"])
def test_the_third_call_is_as_the_first_and_so_is_a_graph(
    loss: str, options: tuple[str, ...]
) -> None:
    features = ELEMENTS["boxes"]
    z, x, given = draw(features, 9, 12, *options, B=200)
    z, x = z.cuda().requires_grad_(), x.cuda()
    given = {name: array.cuda() for name, array in given.items()}

    def step() -> tuple[Tensor, Tensor]:
        value = LOSSES[loss](z, x, features, reduction="none", **given)
        return value.detach(), torch.autograd.grad(value.sum(), z)[0]

    first = step()
    for _ in range(3):
        again = step()
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert known_tapes() == ["tape"]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    graph.replay()
    assert all(torch.equal(one, other) for one, other in zip(first, captured, strict=True))


def test_nothing_waits_for_the_device() -> None:
    features = ELEMENTS["boxes"]
    z, x, given = draw(features, 9, 12, "presence", "target_valid")
    z, x = z.cuda().requires_grad_(), x.cuda()
    given = {name: array.cuda() for name, array in given.items()}
    for loss in (*LOSSES.values(), sw.transport_cross_entropy):
        loss(z, x, features, **given)  # compiles kernels, and fills what is kept
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.autograd.grad(loss(z, x, features, **given), z)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("options", [(), ("presence", "target_valid")], ids=["plain", "presence"])
def test_compiled(loss: str, options: tuple[str, ...]) -> None:
    """Inside a user's program: one operator, the same kernels."""
    features = ELEMENTS["boxes"]
    z, x, given = draw(features, 5, 6, *options)
    given = {name: array.cuda() for name, array in given.items()}
    found = []
    for program in (LOSSES[loss], torch.compile(LOSSES[loss], fullgraph=True)):
        more: dict[str, Any] = {"features": features, **given}
        found.append(values_and_gradients(program, z.cuda(), x.cuda(), torch.float32, **more))
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("element", "size"),
    [*((element, (6, 4)) for element in ELEMENTS), *(("boxes", size) for size in SIZES)],
)
def test_costs_of_all_pairs(element: str, size: tuple[int, int]) -> None:
    """As a loss sees them that has to know them all."""
    features = ELEMENTS[element]
    z, x, given = draw(features, *size, "weight", "target_valid")
    more: dict[str, Any] = {"features": features, "temperature": 5.0}
    there = {name: array.cuda() for name, array in given.items()}
    found = values_and_gradients(
        sw.transport_cross_entropy, z.cuda(), x.cuda(), torch.float32, **more, **there
    )
    exact = values_and_gradients(sw.transport_cross_entropy, z, x, torch.float64, **more, **given)
    torch.testing.assert_close(found, exact, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("options", [(), ("weight", "input_valid", "target_valid")])
@pytest.mark.parametrize("n", [9, 70])
def test_earth_movers(n: int, options: tuple[str, ...]) -> None:
    z, x, given = draw(ELEMENTS["points"], n, n, *options)
    z[0, 1] = x[0, 1]
    there = {name: array.cuda() for name, array in given.items()}
    found = values_and_gradients(
        sw.earth_movers, z.cuda(), x.cuda(), torch.float32, reduction="none", **there
    )
    exact = values_and_gradients(sw.earth_movers, z, x, torch.float64, reduction="none", **given)
    torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("features", [17, 32, 64])
def test_many_coordinates_inside_a_compiled_program(features: int) -> None:
    """They are multiplied while tf32 is allowed, and compared again once it is not."""
    generator = torch.Generator("cuda").manual_seed(0)
    element = sw.Features(sw.Gaussian(features))
    x = element.random_targets((2, 300), generator)
    z = torch.randn(2, 300, features, generator=generator, device="cuda", requires_grad=True)

    def step(z: Tensor) -> Tensor:
        return sw.set_cross_entropy(z, x, element)

    compiled = torch.compile(step, fullgraph=True)
    exact = sw.set_cross_entropy(z.double(), x.double(), element)
    before = torch.get_float32_matmul_precision()
    try:
        for precision, allowed in (("highest", 1e-6), ("medium", 2e-3), ("highest", 1e-6)):
            torch.set_float32_matmul_precision(precision)
            value = compiled(z)
            (slope,) = torch.autograd.grad(value, z)
            eager = torch.autograd.grad(step(z), z)[0]
            torch.testing.assert_close(slope, eager, rtol=1e-3, atol=1e-4)
            assert ((value.double() - exact) / exact).abs() < allowed
    finally:
        torch.set_float32_matmul_precision(before)
