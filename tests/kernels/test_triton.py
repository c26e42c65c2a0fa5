"""The Triton kernels in Triton's interpreter, against dense float64; tests/gpu has them compiled.

A result is judged by its error, which may exceed that of the dense float32 computation by a
rounding. Errors are largest differences, in units of the largest exact entry.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.kernels import dispatch, operators, reference
from splits import set_sm_count, watch_splits
from tf32 import cut_off, held_by_tf32

pytest.importorskip("triton")

from setwise.kernels import bernoulli
from setwise.kernels.triton import engine, tiles
from setwise.kernels.triton.launch import Launcher
from setwise.kernels.triton.operands import round_and_pad

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of log(0), for a loop over masked keys alone, and of 0/0, not used.
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
]
Shape = tuple[int, int, int, int]  # sets, queries or targets, keys or outputs, features
slow = partial(pytest.param, marks=pytest.mark.slow)

EXACT = 1e-5  # the interpreter computes products exactly
HALF = 2e-3  # but weights may have been rounded before, to float16 or to the bits of TF32


@pytest.fixture
def set_precision() -> Iterator[Callable[[str], None]]:
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.fixture(params=["in the forward pass", slow("in the backward pass")])
def gradient_is_computed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the logits of sets that are not small: large ones leave it to the backward pass."""
    if request.param == "in the backward pass":
        monkeypatch.setattr(bernoulli, "LIGHT_PRODUCTS", 0)


@pytest.fixture(autouse=True)
def ordered_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels get their constants by position, which the interpreter would not notice."""
    honest = Launcher.__call__

    def checked(self: Launcher, grid: Any, tensors: Any, numbers: Any) -> None:
        names = list(inspect.signature(self._kernel.fn).parameters)
        assert names[len(tensors) + len(numbers) :] == list(self._constants)
        honest(self, grid, tensors, numbers)

    monkeypatch.setattr(Launcher, "__call__", checked)


def compare(call: Callable[..., list[Tensor]], leaves: list[Tensor], extra: float = EXACT) -> None:
    """``call(impl, *leaves)`` by Triton, and densely in float32, against dense float64."""
    ours = call("triton", *leaves)
    dense, exact = (
        call("reference", *(t.to(kind) for t in leaves)) for kind in (torch.float32, torch.float64)
    )
    for got, usual, right in zip(ours, dense, exact, strict=True):
        assert got.shape == right.shape
        largest = right.abs().max().clamp(min=1e-30)
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, usual))
        assert error <= allowed + extra, f"error {error:.1e}, of the dense {allowed:.1e}"


def operands(B: int, M: int, N: int, F: int, masked: bool = False) -> list[Tensor]:
    """Queries, keys, bias; if masked, some keys are masked, and of many all but the last."""
    generator = torch.Generator().manual_seed(B + 10 * M + 100 * N + 1000 * F)
    shapes = [(B, M, F), (B, N, F), (B, N)]
    queries, keys, bias = (torch.randn(shape, generator=generator) for shape in shapes)
    if masked:
        masked = torch.rand(B, N, generator=generator) < 0.4
        masked[:, : max(0, N - 4)] |= N > 256
        masked[:, -1] = False
        bias = bias.masked_fill(masked, -math.inf)
    return [queries, keys, bias]


def value_and_gradients(impl: Any, *leaves: Tensor) -> list[Tensor]:
    leaves = tuple(t.detach().requires_grad_() for t in leaves)
    value = dispatch.logsumexp(*leaves, impl, skip_negligible=True)
    grad = torch.linspace(-1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value.detach(), *torch.autograd.grad(value, leaves, grad)]


# Points (F <= 4) and products, in one block and in several of either side; features that fit a
# block (F <= 64), that take several, and whose gradient does (F > 256).
SHAPES = [(2, 5, 7, 1), (1, 16, 32, 3), (1, 9, 300, 4), (2, 5, 7, 5), (2, 70, 140, 16)]
SHAPES += [(2, 70, 140, 70), (1, 20, 70, 300)]
# Loops long enough to be split, over the keys and over the queries.
LONG = [(1, 5, 1030, 2), (1, 520, 5, 3), (1, 130, 600, 33), (1, 20, 600, 70), (1, 300, 66, 70)]
BARE = [(shape, 3, False) for shape in SHAPES + LONG[2:]]
MASKED = [(shape, 50, True) for shape in SHAPES + LONG]


# Of these one layout is in the first tier, by `PRECISE` and `SPLIT` below.
COSTLY = [(2, 70, 140, 70), (1, 20, 70, 300), (1, 130, 600, 33), (1, 20, 600, 70)]
COSTLY += [(1, 300, 66, 70), (1, 520, 5, 3)]
# And of these one with masks.
MASKED_ONLY = [(1, 9, 300, 4), (2, 70, 140, 16)]
ENGINE = [
    slow(*case) if case[0] in COSTLY or (case[0] in MASKED_ONLY and not case[2]) else case
    for case in BARE + MASKED
]


@pytest.mark.parametrize(("shape", "sm_count", "masked"), ENGINE, ids=str)
def test_engine(shape: Shape, sm_count: int, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    set_sm_count(monkeypatch, sm_count)
    leaves = operands(*shape, masked=masked)
    compare(value_and_gradients, leaves)
    index = operators.argmax(*leaves, "triton")
    scores = reference.scores(*(t.double() for t in leaves))
    best, chosen = scores.amax(-1), scores.gather(-1, index.unsqueeze(-1)).squeeze(-1)
    assert (best - chosen <= EXACT * best.abs().max()).all()


PRECISE = [
    (precision, extra, shape)
    for precision, extra in (("highest", EXACT), ("medium", HALF))
    for shape in ((1, 70, 140, 16), (1, 66, 70, 300))
]
PRECISE += [slow("highest", EXACT, (1, 66, 70, 100)), ("medium", HALF, (1, 66, 70, 100))]
# Which have blocks of their own, of the backward and of the forward pass.
PRECISE += [slow("medium", HALF, (1, 256, 256, 256)), slow("medium", HALF, (1, 520, 513, 70))]
every_precision = pytest.mark.parametrize(("precision", "extra", "shape"), PRECISE, ids=str)


@every_precision
def test_engine_in_every_precision(
    precision: str, extra: float, shape: Shape, set_precision: Callable[[str], None]
) -> None:
    """At "medium" the second product of the backward pass reads a transposed copy."""
    set_precision(precision)
    leaves = operands(*shape, masked=True)
    if precision == "medium":
        leaves = [held_by_tf32(t) for t in leaves]
    compare(value_and_gradients, leaves, extra)


@pytest.mark.parametrize(
    ("dtype", "columns", "copy"),
    [(torch.float32, 16, 4), (torch.bfloat16, 64, 0)],  # the latter needs none
)
def test_tiles_of_256_features_fit_the_device(dtype: torch.dtype, columns: int, copy: int) -> None:
    """Rows, for each stage the columns and their copy, ones, and 1 KiB, as an H200 has."""
    chosen = partial(tiles.backward_tiles, 32768, 32768, 256, dtype, "tf32")
    loop = chosen(232448)
    assert (loop.a, loop.c) == (128, columns)
    step = loop.c * (dtype.itemsize * loop.f + copy * loop.d)
    needed = dtype.itemsize * (loop.a * loop.f + loop.c * 16) + loop.stages * step + 1024
    assert chosen(needed) == loop
    # A device with less has the tiles of other numbers of features, less of which stay at hand.
    assert chosen(needed - 1).f == 32


def test_tiles_of_100_features_fit_any_device() -> None:
    """All features stay at hand if they are of 16 bits: even 99 KiB are enough."""
    loop = tiles.backward_tiles(300, 300, 100, torch.float16, "tf32", 99 * 1024)
    assert loop.f == loop.d == 128
    assert tiles.smem_bytes(loop, torch.float16) <= 99 * 1024


@pytest.mark.parametrize("F", [3, 6])
def test_queries_without_a_key_weigh_nothing(F: int) -> None:
    leaves = operands(2, 5, 7, F)
    leaves[2][0] = -math.inf
    value, *grads = value_and_gradients("triton", *leaves)
    assert value[0].eq(-math.inf).all()
    assert value[1].isfinite().all()
    assert all(grad[0].eq(0).all() and grad[1].isfinite().all() for grad in grads)


@pytest.mark.parametrize("compared", [0, 2])
@pytest.mark.parametrize("F", [3, 6])
def test_operators_keep_their_promises(F: int, compared: int) -> None:
    """Shapes, types and strides are those that torch.compile was told, for any layout."""
    queries, keys, bias = operands(2, 5, 7, F)
    queries, keys = (t.mT.contiguous().mT for t in (queries, keys))
    sharpness = torch.ones(compared).expand(2, compared) if compared else None
    lse, terms, peaks = operators.logsumexp(queries, keys, bias, "triton", True, sharpness)
    backward = (torch.ones_like(lse), queries, keys, bias, terms, peaks, True, True, "triton")
    for operator, given in [
        (operators.logsumexp, (queries, keys, bias, "triton", True, sharpness)),
        (operators.argmax, (queries, keys, bias, "triton", sharpness)),
        (operators.logsumexp_backward, (*backward, sharpness)),
    ]:
        torch.library.opcheck(operator, given, test_utils=("test_schema", "test_faketensor"))


def arguments(B: int, M: int, N: int, F: int) -> list[Tensor]:
    """Logits, target and weight."""
    generator = torch.Generator().manual_seed(B + 10 * M + 100 * N + 1000 * F)
    logits = 3 * torch.randn(B, N, F, generator=generator)
    target, weight = (torch.rand(shape, generator=generator) for shape in ((B, M, F), (B, M)))
    return [logits, target, weight + 0.1]


def masks(B: int, M: int, N: int, F: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(M + N)
    outputs, targets = (torch.rand(B, size, generator=generator) < 0.6 for size in (N, M))
    outputs[:, -1] = True
    return {"input_valid": outputs, "target_valid": targets}


def loss_to(
    *wanted: int, loss: Any = sw.set_cross_entropy, twice: bool = False, **options: Any
) -> Callable[..., list[Tensor]]:
    """A loss for `compare`, with gradients to the wanted among logits, target and weight."""

    def call(impl: Any, *leaves: Tensor) -> list[Tensor]:
        z, x, w, *_ = [t.detach() for t in leaves] + [None]
        into = [(z, x, w)[i].requires_grad_() for i in wanted]
        value = loss(z, x, weight=w, impl=impl, **options)
        scale = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
        grads = torch.autograd.grad(value, into, scale, create_graph=twice)
        if twice:
            mixture = torch.stack([grad.sin().sum() for grad in grads]).sum()
            grads += torch.autograd.grad(mixture, into)
        return [t.detach() for t in (value, *grads)]

    return call


FEW = [(2, 1, 1, 1), (3, 5, 8, 6), (2, 7, 3, 130)]
SMALL = [*FEW[:2], slow(FEW[2]), slow((3, 5, 9, 6)), (2, 33, 20, 16), (1, 7, 64, 130)]
LARGE = [(2, 20, 66, 3), slow((1, 5, 520, 2)), slow((1, 20, 300, 40)), slow((2, 130, 70, 70))]
LARGE += [slow((1, 65, 5, 300))]


@pytest.mark.parametrize("shape", SMALL + LARGE, ids=str)
@pytest.mark.parametrize("reduction", ["mean", slow("sum"), "none"])
@pytest.mark.usefixtures("gradient_is_computed")
def test_set_cross_entropy(shape: Shape, reduction: Any) -> None:
    """Fused, with a gradient to the target, and to the weight, which takes the general way."""
    leaves = arguments(*shape)
    if reduction == "mean":
        compare(loss_to(0, reduction=reduction), leaves[:2])
        compare(loss_to(0, 1, 2, reduction=reduction), leaves)
    else:
        compare(loss_to(0, 1, reduction=reduction, **masks(*shape)), leaves)


# Long targets or outputs, of points and of products, in one set and in several. The former have
# the same precision at any setting.
POINTS = [(1, 520, 70, 3), (1, 70, 600, 3), (3, 20, 600, 3), (2, 600, 70, 1)]
SPLIT = [(POINTS[0], "highest"), slow(POINTS[0], "float16")]
SPLIT += [slow(shape, precision) for shape in POINTS[1:] for precision in ("highest", "float16")]
SPLIT += [((1, 140, 140, 40), "highest"), ((1, 140, 140, 40), "float16")]
SPLIT += [slow((1, 300, 300, 40), precision) for precision in ("highest", "medium", "float16")]


@pytest.mark.parametrize(("shape", "precision"), SPLIT, ids=str)
@pytest.mark.usefixtures("gradient_is_computed")
def test_set_cross_entropy_in_split_loops(
    shape: Shape,
    precision: str,
    set_precision: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Few sets on a large device; the share of the sigmoid is added when all splits are there."""
    set_sm_count(monkeypatch, 50)
    splits = watch_splits(monkeypatch)
    leaves = arguments(*shape)
    if precision == "float16":
        leaves = [t.half() for t in leaves]
    else:
        set_precision(precision)
    if precision == "medium":
        leaves = [held_by_tf32(t) for t in leaves]
    extra = EXACT if precision == "highest" else HALF
    compare(loss_to(0, 1, reduction="none", **masks(*shape)), leaves, extra)
    compare(loss_to(0), leaves[:2], extra)
    # Forward, to the logits and to the target; then the first two again.
    assert len(splits) >= 3
    assert max(splits) > 1
    if shape[1] == shape[2]:
        assert min(splits) > 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_features_do_not_round_at_the_size_of_their_bias(seed: int) -> None:
    """The bias of 1224 features is over 1000, and scores that differ by one can be told apart.

    Better than the dense computation by far: it could not be by luck in all four draws.
    """
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(1, 70, 1224, generator=generator)
    x = torch.rand(1, 5, 1224, generator=generator)

    def gradient(impl: Any, dtype: torch.dtype) -> Tensor:
        leaf = z.to(dtype).requires_grad_()
        (grad,) = torch.autograd.grad(sw.set_cross_entropy(leaf, x.to(dtype), impl=impl), leaf)
        return grad.double()

    exact = gradient("reference", torch.float64)
    errors = [
        (gradient(impl, torch.float32) - exact).abs().max() for impl in ("triton", "reference")
    ]
    assert errors[0] < errors[1] / 2


def test_no_valid_output_among_many_features() -> None:
    z, x = torch.zeros(2, 70, 20), torch.ones(2, 3, 20)
    valid = torch.ones(2, 70, dtype=torch.bool)
    valid[0] = False
    loss = sw.set_cross_entropy(z, x, input_valid=valid, reduction="none", impl="triton")
    assert loss[0] == math.inf
    assert loss[1].item() == pytest.approx(-3 * (math.log(70) - 20 * math.log(2)), rel=1e-5)


@pytest.mark.parametrize("sets", [(3, 5, 9, 6), (300, 80, 80, 60)], ids=str)
@pytest.mark.parametrize(("numbers", "products"), [(0, 2**62), (2**62, 0)], ids=str)
def test_large_gradients_are_not_kept(
    sets: Shape, numbers: int, products: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither if they take much memory nor if they take long; a small set has them for nothing."""
    B, M, N, F = sets
    target, logits = torch.zeros(B, M, F), torch.zeros(B, N, F)
    assert bernoulli._is_light(target, logits)
    monkeypatch.setattr(bernoulli, "LIGHT_NUMBERS", numbers)
    monkeypatch.setattr(bernoulli, "LIGHT_PRODUCTS", products)
    assert not bernoulli._is_light(target, logits)


@pytest.mark.parametrize("F", [3, 6])
@pytest.mark.parametrize("temperature", [1.0, slow(0.5)])
def test_the_jacobian_of_several_losses_of_one_set(F: int, temperature: float) -> None:
    """One set has nothing to tell a mapped dimension from, so views of it may lie in one place."""
    z, x, w = arguments(1, 4, 7, F)
    weights = torch.stack([w, 2 * w, w.flip(-1)])

    def losses(impl: Any, z: Tensor) -> Tensor:
        options = {"temperature": temperature, "impl": impl}
        return torch.stack([sw.set_cross_entropy(z, x, weight=v, **options) for v in weights])

    ours, dense = (torch.func.jacrev(partial(losses, impl))(z) for impl in ("triton", "reference"))
    torch.testing.assert_close(ours, dense, rtol=EXACT, atol=EXACT)


@pytest.mark.parametrize("shape", [(2, 5, 9, 6), slow((1, 70, 66, 6))], ids=str)
def test_second_derivatives(shape: Shape) -> None:
    compare(loss_to(0, twice=True), arguments(*shape)[:2])
    compare(loss_to(0, 1, 2, twice=True, **masks(*shape)), arguments(*shape))


@every_precision
@pytest.mark.usefixtures("gradient_is_computed")
def test_set_cross_entropy_in_every_precision(
    precision: str, extra: float, shape: Shape, set_precision: Callable[[str], None]
) -> None:
    """At "medium" all products are of float16."""
    set_precision(precision)
    leaves = arguments(*shape)
    if precision == "medium":
        leaves = [held_by_tf32(t) for t in leaves]
    compare(loss_to(0, **masks(*shape)), leaves, extra)


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


@pytest.mark.parametrize("shape", [(3, 5, 9, 6), slow((3, 20, 66, 6))], ids=str)
@pytest.mark.parametrize("wanted", [(0,), slow((0, 1, 2))], ids=str)
def test_any_layout(shape: Shape, wanted: tuple[int, ...]) -> None:
    """Tensors that are transposed, or that repeat a row or a number, are read as what they are."""
    z, x, w = leaves = arguments(*shape)
    tensors = [*leaves, *masks(*shape).values()]
    turned = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in tensors]
    compare(loss_to(*wanted), [z, x, turned[2]])
    compare(loss_to(*wanted), [z, x, w[:1].expand_as(w)])
    compare(loss_to(*wanted), [z, x, w[:, :1].expand_as(w)])
    compare(loss_to(*wanted, input_valid=turned[3]), leaves)
    compare(loss_to(*wanted, target_valid=turned[4]), leaves)
    compare(loss_to(*wanted), turned[:3])
    compare(loss_to(*wanted, twice=True), turned[:3])


@pytest.mark.parametrize("size", [5, slow(70)], ids=["small", "large"])
def test_empty_sets(size: int) -> None:
    """No target costs nothing, and pulls at nothing; no output costs infinity."""
    z, x, _ = arguments(3, size, size, 6)
    z.requires_grad_()
    lengths = {"target_valid": torch.tensor([0, 2, 5]), "input_valid": torch.tensor([3, 0, 5])}
    value = sw.set_cross_entropy(z, x, reduction="none", impl="triton", **lengths)
    assert value[:2].tolist() == [0.0, math.inf]
    (grad,) = torch.autograd.grad(value[::2].sum(), z)
    assert grad[:2].eq(0).all()
    compare(loss_to(0, target_valid=lengths["target_valid"], reduction="none"), [z, x])
    nothing = torch.zeros(2, 0, 6)
    assert sw.set_cross_entropy(z[:2], nothing, impl="triton") == 0.0
    with pytest.warns(RuntimeWarning, match=r"set \[0\] \(and 1 more of 2\) has .* 0 outputs"):
        assert sw.set_cross_entropy(nothing, x[:2], impl="triton") == math.inf


@pytest.mark.parametrize("features", [sw.Features(sw.Bernoulli(6)), sw.Features(sw.Gaussian(6))])
@pytest.mark.parametrize("size", [5, 70], ids=["small", "large"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_an_empty_batch(features: sw.Features, size: int, reduction: Any) -> None:
    z = torch.zeros(0, size, 6, requires_grad=True)
    value = sw.set_cross_entropy(z, z.detach(), features, reduction=reduction, impl="triton")
    assert torch.autograd.grad(value.sum(), z)[0].shape == z.shape
    expected = sw.set_cross_entropy(z, z.detach(), features, reduction=reduction)
    torch.testing.assert_close(value, expected, equal_nan=True)


FEATURES = {
    "bernoulli": sw.Features(sw.Bernoulli(5, weight=0.5)),
    "points": sw.Features(sw.Gaussian(3, scale=0.5)),
    "mixed": sw.Features(sw.Categorical(3), sw.Gaussian(2), sw.Bernoulli(70)),
}
LOSSES = [
    (sw.set_average, {"directed": False}),
    # Of these the first tier has the mixed features in `test_engine`, as dot products.
    (sw.set_cross_entropy, {"temperature": 0.5}),
    (sw.hausdorff, {"directed": False}),
]
EVERY_LOSS = [
    pytest.param(
        *(loss, options, FEATURES[features]),
        id=f"{loss.__name__}-{options}-{features}",
        marks=pytest.mark.slow if features == "mixed" and loss is not sw.set_average else (),
    )
    for loss, options in LOSSES
    for features in FEATURES
]


@pytest.mark.parametrize(("loss", "options", "features"), EVERY_LOSS)
def test_every_loss(loss: Any, options: dict[str, Any], features: sw.Features) -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(2, 70, features.width, generator=generator)
    x, w = features.random_targets((2, 20), generator), torch.rand(2, 20, generator=generator)
    options = {"features": features, **options, **masks(2, 20, 70, features.width)}
    compare(loss_to(0, 1, 2, loss=loss, **options), [z, x, w])


@pytest.mark.parametrize("F", [3, 20])
def test_a_corrupted_gradient_is_caught(F: int, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = engine.gradients

    def corrupted(*args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        d_rows, d_bias = honest(*args, **options)
        # The error is named to one digit: at 1e-4 it could be told as 9.99e-05.
        d_rows.view(-1)[d_rows.abs().argmax()] *= 1 + 1.5e-4
        return d_rows, d_bias

    monkeypatch.setattr(engine, "gradients", corrupted)
    with pytest.raises(AssertionError, match="error 1"):
        compare(value_and_gradients, operands(2, 20, 30, F))
    with pytest.raises(AssertionError, match="error 1"):
        compare(loss_to(0), arguments(1, 20, 70, F))


LACKING = [("_interprets", "CUDA tensors"), ("_has_triton", "Triton")]


@pytest.mark.parametrize(("missing", "said"), LACKING, ids=["interpreter", "triton"])
@pytest.mark.parametrize("loss", [sw.set_cross_entropy, sw.set_average, sw.hausdorff])
def test_triton_is_never_replaced(
    loss: Any, missing: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, missing, lambda: False)
    with pytest.raises(ValueError, match=f"^impl: 'triton' needs {said}"):
        loss(torch.zeros(2, 3, 4), torch.zeros(2, 3, 4), impl="triton")


def test_float64_is_refused() -> None:
    z = torch.zeros(2, 3, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"^impl: 'triton' .* float64"):
        sw.set_cross_entropy(z, z, impl="triton")


def test_auto_never_takes_triton_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "DENSE_SCORES", 100)
    sizes = (torch.zeros(1, 3, 4), torch.zeros(9, 9, 4))
    assert [dispatch.choose("auto", t, t) for t in sizes] == ["reference", "chunked"]
