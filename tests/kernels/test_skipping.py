"""Tiles that cannot matter are skipped in the backward pass of the Triton engine, and no others.

In Triton's interpreter, which multiplies bfloat16 wrongly; tests/gpu has that, and all compiled.
"""

from __future__ import annotations

import math
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tools import kernel_studies
from torch import Tensor

import setwise as sw
from setwise.kernels import dispatch, matmul_precision, operators
from skipped_blocks import agree, confused, loss_and_gradients, separated
from splits import set_sm_count, watch_splits, watch_visits
from tf32 import held_by_tf32

pytest.importorskip("triton")

from setwise.kernels.triton import skipping

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of log(0), for a loop over masked keys alone, and of NaN.
    pytest.mark.filterwarnings(
        "ignore:(divide by zero|invalid value|All-NaN slice) encountered:RuntimeWarning"
    ),
]
Shape = tuple[int, int, int, int]  # sets, targets, outputs, features

# To the logits, blocks of the backward pass hold as many keys as in the forward pass, then less.
slow = partial(pytest.param, marks=pytest.mark.slow)
SHAPES = [slow((2, 160, 330, 40)), slow((1, 160, 330, 70))]


@pytest.fixture(autouse=True)
def small_sets_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(skipping, "MIN_ELEMENTS", 0)


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, int]]:
    return watch_visits(monkeypatch)


@pytest.mark.parametrize("temperature", [slow(1.0), 0.5], ids=["fused", "general"])
@pytest.mark.parametrize("shape", [*SHAPES, (1, 65, 260, 70)], ids=str)
def test_separated_sets(shape: Shape, temperature: float, visits: list[tuple[Tensor, int]]) -> None:
    agree(*separated(*shape), temperature=temperature)
    assert len(visits) == 2  # to the logits and to the target
    assert all(0 < visited < 0.75 * everything for visited, everything in visits)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nothing_is_skipped_where_all_pairs_matter(
    shape: Shape, visits: list[tuple[Tensor, int]]
) -> None:
    z, x = confused(*shape)
    on, off = loss_and_gradients(z, x), loss_and_gradients(z, x, skip=False)
    assert len(visits) == 2
    assert all(visited == everything for visited, everything in visits)
    assert all(torch.equal(a, b) for a, b in zip(on, off, strict=True))


@pytest.mark.slow  # the first tier has these blocks in float16, below
@pytest.mark.parametrize("temperature", [1.0, 0.5], ids=["fused", "general"])
def test_in_tf32(
    temperature: float, visits: list[tuple[Tensor, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where 256 features have blocks of their own, of float16 or of tf32."""
    monkeypatch.setattr(matmul_precision, "dot_precision", lambda dtype: "tf32")
    sets = (held_by_tf32(t) for t in separated(1, 300, 520, 256))
    agree(*sets, extra=2e-3, temperature=temperature)
    assert len(visits) == 2
    assert all(visited < 0.75 * everything for visited, everything in visits)


def test_in_float16(visits: list[tuple[Tensor, int]]) -> None:
    agree(*(t.half() for t in separated(1, 300, 520, 256)), extra=2e-3)
    assert len(visits) == 2
    assert all(visited < 0.75 * everything for visited, everything in visits)


@pytest.mark.slow
@pytest.mark.parametrize("data", [separated, confused])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_masks_and_weights(shape: Shape, data: Any, visits: list[tuple[Tensor, int]]) -> None:
    B, M, N, _ = shape
    generator = torch.Generator().manual_seed(0)
    outputs, targets = (torch.rand(B, size, generator=generator) < 0.8 for size in (N, M))
    outputs[:, :256] = False
    weight = torch.rand(B, M, generator=generator)
    agree(*data(*shape), weight=weight, input_valid=outputs, target_valid=targets)
    # Outputs that may not be chosen fill a block, and weigh exactly nothing.
    assert all(visited < everything for visited, everything in visits)


@pytest.mark.slow
@pytest.mark.parametrize("data", [separated, confused])
@pytest.mark.parametrize("temperature", [1.0, slow(0.5)], ids=["fused", "general"])
def test_a_loop_that_is_split(
    temperature: float,
    data: Any,
    visits: list[tuple[Tensor, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each split has a list; sums are split where they would be without, so bits are the same."""
    set_sm_count(monkeypatch, 50)
    splits = watch_splits(monkeypatch)
    z, x = data(1, 300, 700, 40)
    on, off = (loss_and_gradients(z, x, skip, temperature=temperature) for skip in (True, False))
    assert min(splits) > 1
    assert max(splits) > 2
    assert all(torch.equal(a, b) for a, b in zip(on, off, strict=True))
    assert len(visits) == 2
    assert all((visited < everything) == (data is separated) for visited, everything in visits)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["input", "target"])
def test_a_nan_is_not_skipped(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setwise.values.are_readable", lambda tensor: False)
    z, x = separated(1, 300, 520, 40)
    (z if where == "input" else x)[0, 7, 3] = math.nan
    weight = torch.ones(1, 300)
    weight[0, 7] = 0  # by which a NaN stays one
    on, off = (loss_and_gradients(z, x, skip, weight=weight) for skip in (True, False))
    assert on[1].isnan().all()
    for got, all_tiles in zip(on, off, strict=True):
        torch.testing.assert_close(got, all_tiles, equal_nan=True, rtol=1e-6, atol=1e-6)


class TestPyTorch:
    @pytest.mark.slow
    def test_operators_keep_their_promises(self) -> None:
        z, x = separated(1, 300, 520, 40)
        bias = -torch.nn.functional.softplus(z).sum(-1)
        lse, terms, peaks = operators.logsumexp(x, z, bias, "triton", True)
        backward = (torch.ones_like(lse), x, z, bias, terms, peaks, True, True, "triton")
        for operator, given in [
            (operators.logsumexp, (x, z, bias, "triton", True)),
            (operators.logsumexp, (x, z, bias, "triton", False)),
            (operators.logsumexp_backward, backward),
        ]:
            torch.library.opcheck(operator, given, test_utils=("test_schema", "test_faketensor"))

    @pytest.mark.slow
    @pytest.mark.parametrize("dynamic", [False, True])
    def test_compiled(
        self, dynamic: bool, visits: list[tuple[Tensor, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Found by an import, which is no part of a compiled call on a device.
        monkeypatch.setattr(dispatch, "_interprets", lambda: True)
        z, x = separated(1, 300, 520, 40)

        def loss(z: Tensor, x: Tensor) -> Tensor:
            return sw.set_cross_entropy(z, x, impl="triton")

        compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        leaf = z.clone().requires_grad_()
        (grad,) = torch.autograd.grad(compiled(leaf, x), leaf)
        assert visits
        assert visits[0][0] < visits[0][1]
        torch.testing.assert_close(grad, loss_and_gradients(z, x)[1], rtol=1e-4, atol=1e-4)

    @pytest.mark.slow
    def test_transformed(self, visits: list[tuple[Tensor, int]]) -> None:
        z, x = separated(2, 300, 520, 40)

        def loss(z: Tensor, x: Tensor, skip: bool) -> Tensor:
            return sw.set_cross_entropy(z, x, impl="triton", skip_negligible=skip)

        def gradient_of_each(skip: bool) -> Tensor:
            each = torch.func.grad(partial(loss, skip=skip))
            return torch.func.vmap(each)(z, x)

        def gradient_of_all(skip: bool) -> Tensor:
            mapped = torch.func.vmap(partial(loss, skip=skip))
            return torch.func.grad(lambda z: mapped(z, x).sum())(z)

        for gradient in (gradient_of_each, gradient_of_all):
            torch.testing.assert_close(gradient(True), gradient(False))
        assert len(visits) == 2
        assert all(visited < everything for visited, everything in visits)

    @pytest.mark.slow
    @pytest.mark.parametrize("temperature", [1.0, 0.5], ids=["fused", "general"])
    def test_second_derivatives(self, temperature: float, visits: list[tuple[Tensor, int]]) -> None:
        z, x = separated(1, 300, 520, 40)
        results = []
        for impl in ("triton", "reference"):
            leaf, weight = z.clone().requires_grad_(), torch.ones(1, 300, requires_grad=True)
            value = sw.set_cross_entropy(
                leaf,
                x,
                weight=weight,
                temperature=temperature,
                impl=impl,  # type: ignore[arg-type]
            )
            grads = torch.autograd.grad(value, (leaf, weight), create_graph=True)
            mixture = grads[0].sin().sum() + grads[1].sum()
            results.append([value, *grads, *torch.autograd.grad(mixture, (leaf, weight))])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
        # To the logits, then of the gradient to the weight, which is the loss of each target.
        assert len(visits) == 2
        assert all(visited < everything for visited, everything in visits)


@pytest.mark.slow
def test_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/skipping.py without its clock, and without bfloat16; the documents read it."""
    script = Path(__file__).parents[2] / "benchmarks" / "skipping.py"
    records = runpy.run_path(str(script))["records"]
    monkeypatch.setattr(matmul_precision, "dot_precision", lambda dtype: "tf32")
    memory = iter(range(1000, 0, -1))
    for name, instead in {
        "seconds": lambda step, device: 0.001,
        "peak_mb": lambda step, device: next(memory),
        "PRECISIONS": {"tf32": torch.float32},
    }.items():
        monkeypatch.setitem(records.__globals__, name, instead)
    *_, record = records((1, 160, 64), "cpu", "c0ffee")
    rows = record["rows"]
    assert len(rows) == 4 * 2
    assert all(row["equal"] and row["on_ms"] == row["off_ms"] == 1.0 for row in rows)
    # Blocks of 128 and 64: in the same order, each of the latter needs one of the former.
    share = {"random": 1.0, "confident, same order": 0.5, "confident, random order": 1.0}
    for row in rows:
        visits = ["logits", "target"] if row["gradients"] == "both" else ["logits"]
        assert list(row["visited"]) == visits
        if row["data"] in share:
            assert row["visited"] == dict.fromkeys(visits, share[row["data"]])
        else:
            assert all(0.5 <= visited <= 1 for visited in row["visited"].values())
    text = kernel_studies.skipping(record)
    assert "(1, 160, 64)" in text
    assert "commit c0ffee" in text
    assert text.count("| tf32 |") == len(rows)
