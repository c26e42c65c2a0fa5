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
from splits import set_sm_count, watch_splits, watch_visits
from tf32 import held_by_tf32

pytest.importorskip("triton")

from setwise.kernels.triton import engine, skipping, tiles

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


def separated(B: int, M: int, N: int, F: int) -> tuple[Tensor, Tensor]:
    """Confident outputs of distant targets, in the same order; in the last set, in the reverse.

    A feature of each is wrong, or gradients would be nothing but rounding.
    """
    generator = torch.Generator().manual_seed(M + N + F)
    x = torch.randint(0, 2, (B, M, F), generator=generator).float()
    z = 12 * (2 * x[:, torch.arange(N) * M // N] - 1)
    z = z + torch.randn(z.shape, generator=generator)
    z[..., 0] *= -1
    z[-1] = z[-1].flip(0)
    return z, x


def confused(B: int, M: int, N: int, F: int) -> tuple[Tensor, Tensor]:
    """Outputs that have learned nothing yet."""
    generator = torch.Generator().manual_seed(M + N + F)
    return torch.randn(B, N, F, generator=generator), torch.rand(B, M, F, generator=generator)


def loss_and_gradients(
    z: Tensor, x: Tensor, skip: bool = True, weight: Tensor | None = None, **options: Any
) -> list[Tensor]:
    """Gradients are to logits and target."""
    leaves = [t.detach().clone().requires_grad_() for t in (z, x)]
    options = {"impl": "triton", "reduction": "none", **options}
    value = sw.set_cross_entropy(*leaves, weight=weight, skip_negligible=skip, **options)
    scale = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return [value.detach(), *torch.autograd.grad(value, leaves, scale)]


def agree(z: Tensor, x: Tensor, extra: float = 1e-5, **options: Any) -> None:
    """With skipping as without to rounding, and to float64 as near as the dense float32 is."""
    on, off = (loss_and_gradients(z, x, skip, **options) for skip in (True, False))
    assert torch.equal(on[0], off[0])
    options |= {"impl": "reference"}
    usual = loss_and_gradients(z, x, **options)
    options |= {name: t.double() for name, t in options.items() if name == "weight"}
    exact = loss_and_gradients(z.double(), x.double(), **options)
    for got, all_tiles, plain, right in zip(on, off, usual, exact, strict=True):
        largest = right.abs().max()
        assert (got - all_tiles).abs().max() <= 2**-24 * largest
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, plain))
        assert error <= allowed + extra


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


def layout(name: str) -> Tensor:
    """What the outputs are: 0 is one that a target of its own chooses, others are far from all."""
    if name == "random":
        kinds = torch.full([2560], 2.0)
        kinds[torch.randperm(2560, generator=torch.Generator().manual_seed(0))[:20]] = 0
        return kinds
    far = torch.tensor([1.0, 2.0])
    far = far.repeat_interleave(128) if name == "apart" else far.repeat(128)
    return torch.cat([torch.zeros(256), far])


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "tf32"])
@pytest.mark.parametrize("name", ["apart", "mixed", "random"])
def test_what_may_be_lost(name: str, precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight below the cutoff may count as 0, depending on its neighbours; one above may not.

    Every target has 20 ones of 40, so an output of the same logit c everywhere scores 20 c - 40
    softplus(c) with each. The weight of c = 1 is about 2^-47, that of c = 2 about 2^-65; the cutoff
    for 512 outputs is 2^-49.
    """
    monkeypatch.setattr(matmul_precision, "dot_precision", lambda dtype: precision)
    kinds, generator = layout(name), torch.Generator().manual_seed(0)
    targets = int(kinds.eq(0).sum())
    x = (torch.rand(1, targets, 40, generator=generator).argsort(dim=-1) < 20).float()
    z = kinds[None, :, None].expand(1, len(kinds), 40).clone()
    z[:, kinds == 0] = 12 * (2 * x - 1)
    on, off = (loss_and_gradients(z, x, skip)[1] for skip in (True, False))
    if precision == "tf32":
        # Weights are multiplied in float16, where those below 2^-40 are zero anyway.
        assert torch.equal(on, off)
        assert on[:, kinds > 0].eq(0).all()
        return
    exact = loss_and_gradients(z.double(), x.double(), impl="reference")[1]
    scores = x.double() @ z.double().mT - torch.nn.functional.softplus(z.double()).sum(-1)
    rounding = 2e-3 * scores.softmax(-1).sum(1).unsqueeze(-1)
    bound = targets * 2.0**-40 / len(kinds)
    assert ((on - exact).abs() <= bound + rounding).all()
    assert ((off - exact).abs() <= rounding).all()
    assert off[:, kinds > 0].ne(0).any(-1).all()
    assert on[:, kinds < 2].ne(0).any(-1).all()
    lost = on[:, kinds == 2].eq(0).all(-1).double().mean()
    assert {"apart": lost == 1, "mixed": lost == 0, "random": 0.1 < lost < 0.9}[name]


def recorded(z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The logsumexp of each target, and what is recorded of it."""
    bias = -torch.nn.functional.softplus(z).sum(-1)
    lse, _, peaks = operators.logsumexp(x, z, bias, "triton", True)
    return lse, peaks


@pytest.mark.slow
def test_unmatched_targets_spoil_no_more_than_their_own_tiles() -> None:
    """One in each group has no output: alone, the peaks say that all tiles matter then."""
    z, x = separated(1, 320, 640, 40)
    z = 4 * z
    x[:, ::32] = x[:, ::32].roll(7, -1)
    lse, peaks = recorded(z, x)
    peaks_alone = torch.stack([peaks[:, 0], torch.zeros_like(peaks[:, 1])], dim=1)
    weight = torch.ones(1, 320)
    weight[:, ::32] = 0

    def share(peaks: Tensor, weight: Tensor | None) -> float:
        return float(skipping.significant_tiles(peaks, lse, weight, 640).float().mean())

    assert share(peaks, None) < 0.9 * share(peaks_alone, None)
    # And where they weigh nothing they spoil nothing.
    assert share(peaks_alone, weight) < 0.8 * share(peaks_alone, None)
    agree(z, x)
    agree(z, x, weight=weight)
    agree(z, x, weight=weight, temperature=0.5)


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


def blocked(values: Tensor, rows: int, columns: int, filling: float = -math.inf) -> Tensor:
    """[B, M, N] as [B, blocks of rows, blocks of columns, rows, columns]"""
    lacking = (0, -values.shape[2] % columns, 0, -values.shape[1] % rows)
    filled = torch.nn.functional.pad(values, lacking, value=filling)
    return filled.unflatten(2, (-1, columns)).unflatten(1, (-1, rows)).transpose(2, 3)


def record_of(scores: Tensor, F: int) -> Tensor:
    """Peaks and lags, from all scores at once."""
    (_, M, N), rows = scores.shape, skipping.PEAK_QUERIES.value
    columns = skipping.matmul_blocks(M, N, F)[1]
    tops = blocked(scores, 1, columns).amax((3, 4))  # of each query in each block of keys
    lags = tops - tops.cummax(dim=2).values
    # Without any admissible key, a query weighs nothing.
    lags = torch.where(tops == -math.inf, -math.inf, lags)
    return torch.stack([blocked(t, rows, 1).amax((3, 4)) for t in (tops, lags)], dim=1)


@pytest.mark.slow
@pytest.mark.parametrize("sm_count", [1, 50], ids=["whole", "split"])
def test_what_is_recorded(sm_count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 128 keys, whether a tile has as many or less; splits of a loop share no record."""
    set_sm_count(monkeypatch, sm_count)
    splits = watch_splits(monkeypatch)
    z, x = confused(2, 300, 640, 40)
    scores = x @ z.mT - torch.nn.functional.softplus(z).sum(-1).unsqueeze(1)
    lse, peaks = recorded(z, x)
    assert peaks.shape == (2, 2, 10, 5)
    assert (splits[0] > 1) == (sm_count > 1)
    bias = -torch.nn.functional.softplus(z).sum(-1)
    assert torch.equal(lse, operators.logsumexp(x, z, bias, "triton", False)[0])
    exact = record_of(scores, 40)
    torch.testing.assert_close(peaks[:, 0], exact[:, 0], rtol=1e-5, atol=1e-4)
    if sm_count == 1:
        torch.testing.assert_close(peaks[:, 1], exact[:, 1], rtol=1e-5, atol=1e-4)
    else:  # each split begins anew, and so knows less
        assert (peaks[:, 1] >= exact[:, 1] - 1e-4).all()
    torch.testing.assert_close(lse, scores.logsumexp(-1))


@pytest.mark.parametrize("some_weigh_nothing", [False, True])
def test_lists_are_those_of_single_weights(some_weigh_nothing: bool) -> None:
    """Against every weight, one by one, for all pairs of block sizes; NaN and infinities stay."""
    generator = torch.Generator().manual_seed(0)
    B, M, N, F = 2, 300, 520, 40
    scores = 100 * torch.randn(B, M, 1, generator=generator)
    scores = scores - 400 * torch.rand(B, M, N, generator=generator)
    scores[0, :, :256] = -math.inf
    scores[1, 256:, 256:] = 900.0
    lse = scores.logsumexp(-1)
    lse[0, 299], lse[1, 5] = math.nan, -math.inf
    factor = torch.ones(B, M)
    factor[:, :256:2] = 0
    weights = scores - lse.unsqueeze(-1)
    if some_weigh_nothing:
        weights = weights.masked_fill(factor.eq(0).unsqueeze(-1), -math.inf)
    limit = -math.log(N) - skipping.CUTOFF_BITS * math.log(2)
    per_query = factor if some_weigh_nothing else None
    kept = skipping.significant_tiles(record_of(scores, F), lse, per_query, N)
    for a, c, rows_are_keys in [
        (128, 64, True),
        (128, 32, False),
        (32, 16, True),
        (64, 256, False),
    ]:
        loop = tiles.Tiles(a=a, c=c, f=0, d=0, warps=1, stages=1)
        columns = M if rows_are_keys else N
        rows, columns = (c, a) if rows_are_keys else (a, c)
        needed = ~(blocked(weights, rows, columns) < limit).all(-1).all(-1)
        needed = needed.mT if rows_are_keys else needed
        for per_split in (columns, 2 * c):
            per_split_tiles = tiles.blocks_in(per_split, c)
            listed, count = skipping.tiles_to_visit(kept, M, N, F, loop, rows_are_keys, per_split)
            assert listed.shape[:3] == count.shape
            assert listed.shape[3] == per_split_tiles
            assert 0 < needed.sum() <= count.sum() < needed.numel()
            for b in range(B):
                for row in range(needed.shape[1]):
                    visited = [
                        split * per_split_tiles + at
                        for split, how_many in enumerate(count[b, row].tolist())
                        for at in listed[b, row, split, :how_many].tolist()
                    ]
                    assert visited == sorted(set(visited))
                    assert set(needed[b, row].nonzero().flatten().tolist()) <= set(visited)


class RecordedError(Exception):
    """Something was recorded."""


def test_nothing_is_recorded_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without autograd, without anything to differentiate, or where only another way is taken."""

    def refuse(*sizes: int) -> None:
        raise RecordedError

    monkeypatch.setattr(engine, "peaks_shape", refuse)
    z, x = confused(1, 70, 140, 6)
    weight = torch.ones(1, 70, requires_grad=True)
    for temperature in (1.0, 0.5):
        options = {"temperature": temperature, "impl": "triton"}
        sw.set_cross_entropy(z, x, **options)
        leaf, soft = z.clone().requires_grad_(), x.clone().requires_grad_()
        with torch.no_grad():
            sw.set_cross_entropy(leaf, soft, **options)
        for wanted in ((leaf, x), (z, soft)):
            with pytest.raises(RecordedError):
                sw.set_cross_entropy(*wanted, **options)
    sw.set_cross_entropy(leaf, x, weight=weight, impl="triton")


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


def test_small_calls_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    shape = skipping.peaks_shape
    assert shape(1, 32768, 32768, 256) == (1, 2, 1024, 128)
    assert shape(8, 4096, 4096, 64) is None
    assert shape(2**20, 64, 64, 256) is None
    assert shape(1, 10**6, 10**6, 3) is None
    assert shape(1, 10**6, 10**6, 8) is None  # lists would be larger than the sets
