"""The Triton kernels in Triton's interpreter, against dense float64; tests/gpu has them compiled.

A result is judged by its error, which may exceed that of the dense float32 computation by a
rounding. Errors are largest differences, in units of the largest exact entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import setwise as sw
from engine_cases import (
    EXACT,
    HALF,
    LARGE,
    SMALL,
    Shape,
    arguments,
    check_constants,
    compare,
    every_precision,
    loss_to,
    masks,
    operands,
    slow,
    value_and_gradients,
)
from setwise.kernels import dispatch
from splits import set_sm_count, watch_splits
from tf32 import held_by_tf32

pytest.importorskip("triton")

from setwise.kernels import bernoulli
from setwise.kernels.triton import engine

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of log(0), for a loop over masked keys alone, and of 0/0, not used.
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def ordered_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    check_constants(monkeypatch)


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
    """The bias of 1224 features is over 1000, and outputs have scores that differ by less than one.

    Gradients are nearer to the exact ones than if exact scores were rounded to float32, and nothing
    else: that could not be by luck in all four draws.
    """
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(1, 1, 1224, generator=generator)
    z = z + 0.02 * torch.randn(1, 70, 1224, generator=generator)
    x = torch.rand(1, 5, 1224, generator=generator)
    leaf = z.clone().requires_grad_()
    (ours,) = torch.autograd.grad(sw.set_cross_entropy(leaf, x, impl="triton"), leaf)
    z, x = z.double(), x.double()

    def gradient(scores: Tensor) -> Tensor:
        p = scores.softmax(dim=-1)
        return z.sigmoid() * p.sum(dim=1).unsqueeze(-1) - p.mT @ x

    scores = x @ z.mT - functional.softplus(z).sum(dim=-1).unsqueeze(1)
    exact, rounded = gradient(scores), gradient(scores.float().double())
    assert (ours - exact).abs().max() < (rounded - exact).abs().max() / 2


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
