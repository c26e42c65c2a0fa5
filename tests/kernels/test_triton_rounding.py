"""What is rounded to tf32 and to float16 on the way, in Triton's interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from engine_cases import (
    HALF,
    LARGE,
    SMALL,
    Shape,
    arguments,
    check_constants,
    compare,
    loss_to,
    masks,
    slow,
)
from splits import set_sm_count
from tf32 import cut_off, held_by_tf32

pytest.importorskip("triton")

from setwise.kernels.triton.operands import round_and_pad

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of log(0), for a loop over masked keys alone, and of 0/0, not used.
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def ordered_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    check_constants(monkeypatch)


def test_small_sets_in_tf32(set_precision: Callable[[str], None]) -> None:
    set_precision("medium")
    compare(loss_to(0), [held_by_tf32(t) for t in arguments(2, 20, 30, 9)], HALF)


@pytest.mark.parametrize("sm_count", [1, 50], ids=["whole", "split"])
@pytest.mark.parametrize("temperature", [1.0, 1.5], ids=["fused", "general"])
@pytest.mark.parametrize("shape", [(1, 20, 100), slow((1, 140, 100)), slow((1, 140, 301))], ids=str)
def test_numbers_are_rounded_to_tf32(
    shape: tuple[int, int, int],
    temperature: float,
    sm_count: int,
    set_precision: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tensor cores would cut them off, always to one side. They find nothing left to cut off."""
    set_precision("medium")
    set_sm_count(monkeypatch, sm_count)
    cut = cut_off(monkeypatch)
    z, x = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    x = x.sigmoid()

    def call(impl: Any, z: Tensor, x: Tensor) -> list[Tensor]:
        leaves = [t.detach().clone().requires_grad_() for t in (z, x)]
        value = sw.set_cross_entropy(*leaves, impl=impl, temperature=temperature)
        return [value.detach(), *torch.autograd.grad(value, leaves)]

    compare(call, [z, x], 5e-3)
    # Plain Bernoulli elements are multiplied in float16.
    assert bool(cut) == (temperature != 1)
    assert not any(cut)


@pytest.mark.parametrize("shape", [(1, 20, 100), (1, 70, 100), slow((1, 70, 301))], ids=str)
def test_confident_outputs_in_tf32(
    shape: tuple[int, int, int], set_precision: Callable[[str], None]
) -> None:
    """Their scores are small differences of large terms, and all terms are of rounded logits."""
    set_precision("medium")
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(shape, generator=generator).round()
    z = torch.randn(shape, generator=generator) + 10 * (2 * x - 1)
    z[..., 0] *= -1
    compare(loss_to(0), [z, x], 1e-3)
    value, exact = (
        sw.set_cross_entropy(z.to(kind), x.to(kind), impl=impl)
        for kind, impl in ((torch.float32, "triton"), (torch.float64, "reference"))
    )
    assert abs(value / exact - 1) <= 1e-4


def test_what_rounds_to_tf32() -> None:
    """To the nearest, also below zero; what would become infinite is cut off."""
    given = [1 + 2**-11, 1 + 3 * 2**-12, -1 - 3 * 2**-12, 2.0**-130, 0.0, math.inf, -math.inf]
    expected = [1 + 2**-10, 1 + 2**-10, -1 - 2**-10, 2.0**-130, 0.0, math.inf, -math.inf]
    x = torch.zeros(2, 3, 301)
    x[0, 0, :7] = torch.tensor(given)
    bits = torch.tensor([0x7F7FFFFF, 0x7FC00000, 0x7FFFFFFF, 0x7F800001], dtype=torch.int32)
    x.view(torch.int32)[1, 2, -4:] = bits
    rounded, other = round_and_pad(x, x[:, :2].contiguous(), torch.float32)
    assert rounded.shape == (2, 3, 304)
    assert other.shape == (2, 2, 304)
    assert rounded[0, 0, :7].tolist() == expected
    assert rounded[..., 301:].eq(0).all()
    largest, *nans = rounded[1, 2, 297:301].tolist()
    assert largest == torch.tensor(0x7F7FE000, dtype=torch.int32).view(torch.float32).item()
    assert all(math.isnan(number) for number in nans)


def test_what_rounds_to_float16() -> None:
    """To the nearest; what is finite stays so."""
    given = [1 + 3 * 2**-12, -70000.0, 3e38, 65504.0, 2.0**-30, math.inf, -math.inf, math.nan]
    x = torch.zeros(1, 2, 301)
    x[0, 1, -8:] = torch.tensor(given)
    rounded, _ = round_and_pad(x, x, torch.float16)
    assert rounded.shape == (1, 2, 304)
    *numbers, nan = rounded[0, 1, 293:301].tolist()
    assert numbers == [1 + 2**-10, -65504.0, 65504.0, 65504.0, 0.0, math.inf, -math.inf]
    assert math.isnan(nan)
    half = torch.randn(1, 2, 301).half()
    assert torch.equal(round_and_pad(half, half, torch.float16)[0][..., :301], half)


# NumPy would have warned of what the sigmoid does without harm.
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("sm_count", [1, 50], ids=["whole", "split"])
@pytest.mark.parametrize("impossible", [-7e4, slow(-1e9), slow(-torch.finfo(torch.float32).max)])
@pytest.mark.usefixtures("gradient_is_computed")
def test_logits_beyond_float16(
    impossible: float,
    sm_count: int,
    set_precision: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a feature cannot be there, and is not, nothing changes."""
    set_precision("medium")
    set_sm_count(monkeypatch, sm_count)
    z, x, _ = arguments(1, 140, 150, 40)
    z, x = held_by_tf32(z), x.round()
    x[..., 0] = 0
    z[:, ::2, 0] = impossible
    compare(loss_to(0), [z, x], HALF)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_a_feature_that_no_output_has(set_precision: Callable[[str], None]) -> None:
    """Then the loss is that of the largest float16, where it should be far larger.

    But the gradient is the same, if all outputs are equally far from it.
    """
    set_precision("medium")
    z, x, _ = arguments(1, 140, 150, 40)
    z, x = held_by_tf32(z), x.round()
    z[..., 0], x[..., 0], x[:, 7, 0] = -1e9, 0, 1
    (value, ours), (large, exact) = (
        loss_to(0)(impl, z.to(kind), x.to(kind))
        for impl, kind in (("triton", torch.float32), ("reference", torch.float64))
    )
    assert large > 9e8
    assert 65504 <= value < 70000
    assert (ours - exact).abs().max() <= HALF * exact.abs().max()


@pytest.mark.parametrize("shape", [*SMALL, *LARGE, slow((1, 256, 256, 256))], ids=str)
@pytest.mark.usefixtures("gradient_is_computed")
def test_float16(shape: Shape) -> None:
    """Read as it is; bfloat16 is left to the GPU, for the interpreter multiplies it wrongly."""
    compare(loss_to(0, 1, **masks(*shape)), [t.half() for t in arguments(*shape)], HALF)


@pytest.mark.parametrize("size", [10, 70], ids=["small", "large"])
@pytest.mark.parametrize("weight", [1e-36, 1e36])
@pytest.mark.parametrize("precision", ["highest", "medium"])
@pytest.mark.usefixtures("gradient_is_computed")
def test_weights_of_any_size(
    size: int, weight: float, precision: str, set_precision: Callable[[str], None]
) -> None:
    """Nothing on the way to the gradient is infinite or vanishes."""
    set_precision(precision)
    z, x, w = arguments(1, size, size, 16)

    def gradient(kind: torch.dtype, impl: Any) -> Tensor:
        leaf = held_by_tf32(z).to(kind).requires_grad_()
        value = sw.set_cross_entropy(
            leaf, x.round().to(kind), weight=w.to(kind) * weight, impl=impl
        )
        return torch.autograd.grad(value, leaf)[0]

    ours, exact = gradient(torch.float32, "triton"), gradient(torch.float64, "reference")
    limit = 1e-5 if precision == "highest" else HALF
    assert (ours / weight - exact / weight).abs().max() <= limit * (exact / weight).abs().max()


@pytest.mark.parametrize("size", [10, 70], ids=["small", "large"])
@pytest.mark.parametrize("weight", [1e-7, 1e5])
@pytest.mark.usefixtures("gradient_is_computed")
def test_float16_has_room_for_every_weight(size: int, weight: float) -> None:
    """As for the mean over a large batch, and under the scale that float16 training multiplies."""
    z, x, w = arguments(2, size, size, 16)
    z = z + 8 * x - 4  # confident, so that some softmax weights are near 1

    def call(impl: Any, z: Tensor, x: Tensor) -> list[Tensor]:
        leaf = z.detach().requires_grad_()
        value = sw.set_cross_entropy(leaf, x, weight=w.double() * weight, impl=impl) / weight
        return [value.detach(), *torch.autograd.grad(value, leaf)]

    compare(call, [z.half(), x.half()], HALF)
