"""Launches that are recorded and played, compiled: the same bits as of a first call, anywhere."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import setwise as sw
from fused_cases import ELEMENTS, LOSSES, known_tapes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

DEVICE = "cuda"
FAMILIES = {
    **ELEMENTS,
    "plain Bernoulli": sw.Features(sw.Bernoulli(40)),
    "plain Bernoulli, few": sw.Features(sw.Bernoulli(3)),
}
# What is recorded on every device, as nothing happens beside launches.
PLAYED = [
    ("points", "SH"),
    ("points", "SH at a temperature on the device"),
    ("points", "A1H in both directions"),
    ("points", "H1H in both directions"),
    ("plain Bernoulli, few", "SH"),
]
played = pytest.mark.parametrize(("family", "loss"), PLAYED)

Arrays = dict[str, Tensor]
Found = tuple[Tensor, ...]


def forget() -> None:
    from setwise.kernels.triton import tapes

    tapes.forget()


def draw(
    features: sw.Features, seed: int, *, sets: int = 2, masked: bool = False, device: str = DEVICE
) -> Arrays:
    """130 targets and 301 outputs a set, no multiples of any tile, in memory of their own."""
    generator = torch.Generator().manual_seed(seed)
    arrays = {
        "input": 1.5 * torch.randn(sets, 301, features.width, generator=generator),
        "target": features.random_targets((sets, 130), generator),
    }
    if masked:
        arrays["input_valid"] = torch.rand(sets, 301, generator=generator) < 0.7
        arrays["target_valid"] = torch.rand(sets, 130, generator=generator) < 0.7
        arrays["weight"] = torch.rand(sets, 130, generator=generator)
    return {name: array.to(device, copy=True) for name, array in arrays.items()}


def copied(arrays: Arrays) -> Arrays:
    return {name: array.clone() for name, array in arrays.items()}


def shifted(array: Tensor) -> Tensor:
    """A copy that is not aligned, but has no gaps."""
    whole = torch.empty(array.numel() + 1, dtype=array.dtype, device=array.device)
    return whole[1:].view(array.shape).copy_(array)


def spoil(*many: Arrays) -> None:
    """Who still reads them will notice."""
    for arrays in many:
        for array in arrays.values():
            array.fill_(float("nan")) if array.is_floating_point() else array.logical_not_()


def steps(family: str, loss: str, device: str = DEVICE) -> Callable[[Arrays], Found]:
    """A loss with its gradient. Its temperature is moved here: graphs capture no such copy."""
    features, (function, given) = FAMILIES[family], LOSSES[loss]
    options = {k: v.to(device) if isinstance(v, Tensor) else v for k, v in given.items()}

    def step(arrays: Arrays) -> Found:
        rest: dict[str, Any] = {**options, **arrays}
        z, x = rest.pop("input").detach().requires_grad_(), rest.pop("target")
        value = function(z, x, features, impl="triton", **rest)
        return value.detach(), torch.autograd.grad(value, z)[0]

    return step


def computed(step: Callable[[Arrays], Found], arrays: Arrays) -> Found:
    """Without a tape, and with none left."""
    forget()
    found = step(arrays)
    forget()
    return found


def assert_same(ours: Found, others: Found) -> None:
    for one, other in zip(ours, others, strict=True):
        assert other.isfinite().all()
        assert torch.equal(one, other)


def repeat(family: str, loss: str, masked: bool) -> None:
    """Three calls and one more; the last two are played if they can be."""
    features, step = FAMILIES[family], steps(family, loss)
    used = [draw(features, seed, masked=masked) for seed in (0, 1)]
    first, _ = step(used[0]), step(used[1])
    spoil(*used)
    assert set(known_tapes()) <= {"tape", "never"}
    if (family, loss) in PLAYED and not masked:
        assert known_tapes() == ["tape"]
    for _ in range(2):
        assert_same(step(draw(features, 0, masked=masked)), first)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_third_call_is_as_the_first(family: str, loss: str, masked: bool) -> None:
    """On arrays of its own, while what the others had is spoilt."""
    repeat(family, loss, masked)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("loss", ["SH", "H1H in both directions"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_in_tf32(family: str, loss: str, masked: bool) -> None:
    """And back in full precision, whose tape is another."""
    expected = computed(steps(family, loss), draw(FAMILIES[family], 0, masked=masked))
    torch.set_float32_matmul_precision("medium")
    try:
        repeat(family, loss, masked)
    finally:
        torch.set_float32_matmul_precision("highest")
    for _ in range(3):
        assert_same(steps(family, loss)(draw(FAMILIES[family], 0, masked=masked)), expected)


@pytest.mark.parametrize("loss", ["SH", "H1H in both directions"])
def test_sets_as_of_a_detector_are_recorded(loss: str) -> None:
    features, step = FAMILIES["boxes"], steps("boxes", loss)
    first = step(draw(features, 0, sets=64))
    step(draw(features, 1, sets=64))
    assert known_tapes() == ["tape"]
    assert_same(step(draw(features, 0, sets=64)), first)


@pytest.mark.parametrize("before", [1, 3], ids=["records", "plays"])
@played
def test_a_graph_that(family: str, loss: str, before: int) -> None:
    """Replayed on other numbers; a tape that was recorded in one serves other calls, too."""
    features, step = FAMILIES[family], steps(family, loss)
    arrays, others = draw(features, 0), draw(features, 1)
    expected = computed(step, others)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(before):
            step(arrays)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step(arrays)
    assert known_tapes() == ["tape"]
    for name, array in others.items():
        arrays[name].copy_(array)
    graph.replay()
    assert_same(captured, expected)
    assert_same(step(copied(others)), expected)


@played
def test_side_streams(family: str, loss: str) -> None:
    """At work at the same time: none may have memory that another still uses."""
    features, step = FAMILIES[family], steps(family, loss)
    given = [draw(features, seed) for seed in range(4)]
    expected = [computed(step, arrays) for arrays in given]
    for arrays in given[:2]:
        step(arrays)
    torch.cuda.synchronize()
    streams, found = [torch.cuda.Stream() for _ in given], []
    for _ in range(3):
        for arrays, stream in zip(given, streams, strict=True):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(1_000_000)
                found.append(step(copied(arrays)))
    torch.cuda.synchronize()
    for k, ours in enumerate(found):
        assert_same(ours, expected[k % len(given)])


def test_numbers_of_an_element_are_not_read_before_they_are_filled() -> None:
    """By a stream that is far ahead of the one that has wanted them first."""
    arrays = draw(FAMILIES["points"], 0)

    def value(scale: float) -> Tensor:
        features = sw.Features(sw.Gaussian(3, scale=scale))
        return sw.set_cross_entropy(**arrays, features=features, impl="triton")

    value(0.81)  # compiles the same kernels
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000_000)
        late = value(0.43)
    soon = value(0.43)
    torch.cuda.synchronize()
    assert torch.equal(soon, late)


def test_threads() -> None:
    """All at once from the first call on, each in a stream of its own."""
    kinds = [(FAMILIES[family], steps(family, loss)) for family, loss in PLAYED]
    given = [draw(features, 0) for features, _ in kinds]
    expected = [computed(step, a) for (_, step), a in zip(kinds, given, strict=True)]
    torch.cuda.synchronize()
    together = Barrier(4)

    def run(_: int) -> list[list[Found]]:
        with torch.cuda.stream(torch.cuda.Stream()):
            together.wait()
            found = [
                [step(copied(a)) for (_, step), a in zip(kinds, given, strict=True)]
                for _ in range(5)
            ]
            torch.cuda.current_stream().synchronize()
        return found

    with ThreadPoolExecutor(4) as pool:
        for repeats in pool.map(run, range(4)):
            for ours in repeats:
                for one, alone in zip(ours, expected, strict=True):
                    assert_same(one, alone)
    assert known_tapes() == ["tape"] * len(PLAYED)


def test_a_forward_pass_that_the_backward_pass_repeats() -> None:
    """Checkpoints are computed again in autograd's own thread."""
    features, step = FAMILIES["points"], steps("points", "SH")
    arrays = draw(features, 0)
    expected = computed(step, arrays)
    for _ in range(3):
        z = arrays["input"].clone().requires_grad_()
        value = checkpoint(
            lambda z: sw.set_cross_entropy(z, arrays["target"], features, impl="triton"),
            z,
            use_reentrant=False,
        )
        assert_same((value.detach(), torch.autograd.grad(value, z)[0]), expected)


@played
def test_arrays_that_are_not_aligned(family: str, loss: str) -> None:
    """Have kernels of their own, and so tapes."""
    features, step = FAMILIES[family], steps(family, loss)
    arrays = draw(features, 0)
    apart = {name: shifted(array) for name, array in arrays.items()}
    mixed = {**arrays, "input": apart["input"]}
    ways = [arrays, apart, mixed]
    expected = [computed(step, way) for way in ways]
    for _ in range(3):
        for way, alone in zip(ways, expected, strict=True):
            assert_same(step(way), alone)
    assert known_tapes() == ["tape"] * len(ways)


def test_without_gradients() -> None:
    """Other kernels compute the value alone, which rounds otherwise; tapes are not mixed up."""
    features, step = FAMILIES["points"], steps("points", "A1H")
    arrays = draw(features, 0)

    def valued(_: Arrays) -> Found:
        return (sw.set_average(**arrays, features=features, impl="triton"),)

    expected = computed(step, arrays)
    with torch.no_grad():
        alone = computed(valued, arrays)
    torch.testing.assert_close(alone[0], expected[0], rtol=1e-6, atol=0.0)
    for _ in range(3):
        for off in (torch.no_grad, torch.inference_mode):
            with off():
                assert_same(valued(arrays), alone)
        assert_same(step(arrays), expected)


def test_memory_is_given_back() -> None:
    features, step = FAMILIES["points"], steps("points", "SH")
    arrays = draw(features, 0)
    for _ in range(3):
        step(arrays)
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        step(arrays)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
@played
def test_another_device_than_the_current_one(family: str, loss: str) -> None:
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        step = steps(family, loss, device)
        expected = step(draw(FAMILIES[family], 0, device=device))
        for _ in range(3):
            assert_same(step(draw(FAMILIES[family], 0, device=device)), expected)
