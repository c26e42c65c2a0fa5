"""Every loss by rows of the built-in families through the fused kernels, compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from fused_cases import ELEMENTS, LOSSES, count_losses, judge

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_agreement(element: str, loss: str, masked: bool) -> None:
    for size in ((3, 5), (61, 33), (130, 301)):
        judge(ELEMENTS[element], loss, *size, masked=masked, device="cuda")


@pytest.mark.parametrize("element", ELEMENTS)
def test_tf32(element: str) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        judge(ELEMENTS[element], "SH", 130, 301, device="cuda", tf32=True)
        judge(ELEMENTS[element], "SH at a temperature", 130, 301, device="cuda", tf32=True)
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n", [9, 300])
def test_the_same_bits_by_default(loss: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of repeated calls, which go the fused way unasked; and without waiting for the device."""
    modes = count_losses(monkeypatch)
    features = ELEMENTS["boxes"]
    function, options = LOSSES[loss]
    options = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    generator = torch.Generator("cuda").manual_seed(0)
    x = features.random_targets((8, n), generator)
    z = torch.randn(8, n, features.width, generator=generator, device="cuda", requires_grad=True)
    found = []
    for repeat in range(3):
        torch.cuda.set_sync_debug_mode("error" if repeat else "default")
        try:
            value = function(z, x, features, **options)
            (gradient,) = torch.autograd.grad(value, z)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        found.append((value.detach(), gradient))
    assert len(modes) == 3
    for value, gradient in found[1:]:
        assert value == found[0][0]
        assert torch.equal(gradient, found[0][1])


def test_a_cuda_graph_of_a_first_call() -> None:
    """What is kept for later calls must not be what only a replay would fill."""
    features = sw.Features(sw.Gaussian(3, scale=0.123), sw.Categorical(4))
    x = features.random_targets((2, 5)).cuda()
    z = torch.randn(2, 5, 7, device="cuda", requires_grad=True)
    other = sw.Features(sw.Gaussian(3, scale=0.321), sw.Categorical(4))
    torch.autograd.grad(sw.set_average(z, x, other), z)  # compiles the same kernels
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = sw.set_average(z, x, features)
        (gradient,) = torch.autograd.grad(loss, z)
    loss = loss.detach()  # or torch warns of its graph, which is of the stream of the capture
    eager = sw.set_average(z, x, features)
    graph.replay()
    torch.testing.assert_close(loss, eager.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(eager, z)[0])


@pytest.mark.parametrize("loss", ["SH", "A1H in both directions"])
@pytest.mark.parametrize("n", [9, 300])
def test_compiled(loss: str, n: int) -> None:
    """Inside a user's program: one operator, the same kernels."""
    (function, options), features = LOSSES[loss], ELEMENTS["boxes"]
    generator = torch.Generator("cuda").manual_seed(0)
    x = features.random_targets((8, n), generator)
    z = torch.randn(8, n, features.width, generator=generator, device="cuda", requires_grad=True)
    found = []
    for program in (function, torch.compile(function, fullgraph=True)):
        value = program(z, x, features, **options)
        found.append((value.detach(), torch.autograd.grad(value, z)[0]))
    torch.testing.assert_close(*found, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("loss", [sw.set_cross_entropy, sw.set_average, sw.set_likelihood])
@pytest.mark.parametrize("outputs", [20, 100])
def test_compiled_with_presence(loss: Any, outputs: int) -> None:
    """Which wants a gradient, too: as in a detector, where both come of one network."""
    features = ELEMENTS["boxes"]
    generator = torch.Generator("cuda").manual_seed(0)
    x = features.random_targets((4, 6, 10), generator)
    valid = torch.rand(4, 6, 10, generator=generator, device="cuda") < 0.7
    z = torch.randn(4, 6, outputs, features.width + 1, generator=generator, device="cuda")
    z.requires_grad_()

    def function(z: Tensor) -> Tensor:
        options: dict[str, Any] = {"presence": z[..., -1], "target_valid": valid}
        value: Tensor = loss(z[..., :-1], x, features, reduction="none", **options)
        return value

    found = []
    for program in (function, torch.compile(function, fullgraph=True)):
        value = program(z)
        found.append((value.detach(), torch.autograd.grad(value.sum(), z)[0]))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
