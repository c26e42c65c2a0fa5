"""Tiles that cannot matter are skipped in the backward pass of the Triton engine, and no others.

In Triton's interpreter; tests/gpu has the kernels compiled, at a size where skipping pays.
"""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.kernels import dispatch, operators

pytest.importorskip("triton")

from setwise.kernels.triton import engine, skipping, tiles

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of log(0), for a walk over masked keys alone, and of NaN.
    pytest.mark.filterwarnings(
        "ignore:(divide by zero|invalid value|All-NaN slice) encountered:RuntimeWarning"
    ),
]
Shape = tuple[int, int, int, int]  # sets, targets, outputs, features

# To the logits, blocks of the backward pass hold as many keys as in the forward pass, then less.
SHAPES = [(2, 300, 520, 40), (1, 300, 520, 70)]


@pytest.fixture(autouse=True)
def small_sets_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "LEAST_PRODUCTS", 0)
    monkeypatch.setattr(skipping, "LEAST_ELEMENTS", 0)


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Tiles visited, and all there are, of each walk that has a list."""
    honest, seen = engine.tiles_to_visit, []

    def watched(*args: Any) -> tuple[Tensor, Tensor]:
        listed, count = honest(*args)
        seen.append((int(count.sum()), listed.numel()))
        return listed, count

    monkeypatch.setattr(engine, "tiles_to_visit", watched)
    return seen


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


def gradients(
    z: Tensor, x: Tensor, skip: bool = True, weight: Tensor | None = None, **options: Any
) -> list[Tensor]:
    """To logits, target and, if there is one, weight."""
    leaves = [t.detach().clone().requires_grad_() for t in (z, x)]
    options = {"impl": "triton", "reduction": "none", **options}
    value = sw.set_cross_entropy(*leaves, weight=weight, skip_negligible=skip, **options)
    scale = torch.linspace(1, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
    return list(torch.autograd.grad(value, leaves, scale))


def agree(z: Tensor, x: Tensor, extra: float = 1e-5, **options: Any) -> None:
    """With skipping as without to rounding, and to float64 as near as the dense float32 is."""
    on, off = (gradients(z, x, skip, **options) for skip in (True, False))
    options |= {"impl": "reference"}
    usual = gradients(z, x, **options)
    options |= {name: t.double() for name, t in options.items() if name == "weight"}
    exact = gradients(z.double(), x.double(), **options)
    for got, all_tiles, plain, right in zip(on, off, usual, exact, strict=True):
        largest = right.abs().max()
        assert (got - all_tiles).abs().max() <= 2**-24 * largest
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, plain))
        assert error <= allowed + extra


@pytest.mark.parametrize("temperature", [1.0, 0.5], ids=["fused", "general"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_separated_sets(shape: Shape, temperature: float, walks: list[tuple[int, int]]) -> None:
    agree(*separated(*shape), temperature=temperature)
    assert len(walks) == 2  # to the logits and to the target
    assert all(0 < visited < 0.75 * everything for visited, everything in walks)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nothing_is_skipped_where_all_pairs_matter(
    shape: Shape, walks: list[tuple[int, int]]
) -> None:
    z, x = confused(*shape)
    on, off = gradients(z, x), gradients(z, x, skip=False)
    assert len(walks) == 2
    assert all(visited == everything for visited, everything in walks)
    assert all(torch.equal(a, b) for a, b in zip(on, off, strict=True))


def test_in_tf32(walks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where 256 features have blocks of their own, and the second product is in float16."""
    monkeypatch.setattr(engine, "precision", lambda: "tf32")
    agree(*separated(1, 300, 520, 256), extra=2e-3)
    assert all(visited < 0.75 * everything for visited, everything in walks)


@pytest.mark.parametrize("data", [separated, confused])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_masks_and_weights(shape: Shape, data: Any, walks: list[tuple[int, int]]) -> None:
    B, M, N, _ = shape
    generator = torch.Generator().manual_seed(0)
    outputs, targets = (torch.rand(B, size, generator=generator) < 0.8 for size in (N, M))
    outputs[:, :256] = False
    weight = torch.rand(B, M, generator=generator)
    agree(*data(*shape), weight=weight, input_valid=outputs, target_valid=targets)
    # Outputs that may not be chosen fill a block, and weigh exactly nothing.
    assert all(visited < everything for visited, everything in walks)


def test_a_walk_that_is_split_visits_every_tile(
    walks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "_processors", lambda device: 50)
    agree(*separated(1, 300, 600, 40), temperature=0.5)
    assert walks == []


def test_the_gradient_of_an_unlikely_output_survives() -> None:
    """A block of outputs with weights around 2^-65 learns on; at 2^-116, beyond the cutoff, none.

    Every target has 20 ones, so an output of the same logit c everywhere scores 20 c - 40
    softplus(c) with each: -45 for 2, -81 for 4. The targets have an output of their own besides.
    """
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(1, 256, 40, generator=generator).argsort(dim=-1) < 20).float()
    far = torch.tensor([2.0, 4.0]).repeat_interleave(128)
    z = torch.cat([12 * (2 * x - 1), far[None, :, None].expand(1, 256, 40)], dim=1)
    on, off = gradients(z, x)[0], gradients(z, x, skip=False)[0]
    exact = gradients(z.double(), x.double(), impl="reference")[0]
    unlikely = slice(256, 384)
    assert 0 < exact[:, unlikely].abs().max() < 1e-15
    torch.testing.assert_close(
        on[:, unlikely].double(), exact[:, unlikely], rtol=1e-3, atol=1e-3 * 2.0**-64
    )
    assert on[:, 384:].eq(0).all()
    assert off[:, 384:].ne(0).any()


@pytest.mark.parametrize("where", ["input", "target"])
def test_a_nan_is_not_skipped(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("setwise.values.are_readable", lambda tensor: False)
    z, x = separated(1, 300, 520, 40)
    (z if where == "input" else x)[0, 7, 3] = math.nan
    on, off = gradients(z, x), gradients(z, x, skip=False)
    assert on[0].isnan().all()
    for got, all_tiles in zip(on, off, strict=True):
        torch.testing.assert_close(got, all_tiles, equal_nan=True, rtol=1e-6, atol=1e-6)


def test_lists_are_those_of_single_weights() -> None:
    """Against every weight, one by one, for all pairs of block sizes; NaN and infinities stay."""
    generator = torch.Generator().manual_seed(0)
    B, M, N = 2, 300, 520
    scores = 100 * torch.randn(B, M, 1, generator=generator)
    scores = scores - 400 * torch.rand(B, M, N, generator=generator)
    scores[0, :, :256] = -math.inf
    scores[1, 256:, 256:] = 900.0
    lse = scores.logsumexp(-1)
    lse[0, 299], lse[1, 5] = math.nan, -math.inf
    had = skipping.PEAK_QUERIES.value, skipping.product_blocks(M, N, 40)[1]

    def blocked(values: Tensor, rows: int, columns: int, filling: float) -> Tensor:
        """[B, blocks of rows, blocks of columns, rows, columns]"""
        lacking = (0, -N % columns, 0, -M % rows)
        filled = torch.nn.functional.pad(values, lacking, value=filling)
        return filled.unflatten(2, (-1, columns)).unflatten(1, (-1, rows)).transpose(2, 3)

    peaks = blocked(scores, *had, -math.inf).amax((3, 4))
    limit = -math.log(N) - 64 * math.log(2)
    for a, c, owns_keys in [(128, 64, True), (128, 32, False), (32, 16, True), (64, 256, False)]:
        walk = tiles.Tiles(a=a, c=c, f=0, d=0, warps=1, stages=1)
        listed, count = skipping.tiles_to_visit(peaks, lse, N, 40, walk, owns_keys)
        rows, columns = (c, a) if owns_keys else (a, c)
        weights = blocked(scores - lse.unsqueeze(-1), rows, columns, -math.inf)
        needed = ~(weights < limit).all(-1).all(-1)
        needed = needed.mT if owns_keys else needed
        assert listed.shape == needed.shape
        assert 0 < needed.sum() <= count.sum() < needed.numel()
        for b in range(B):
            for owner in range(needed.shape[1]):
                visited = listed[b, owner, : count[b, owner]].tolist()
                assert visited == sorted(set(visited))
                assert set(needed[b, owner].nonzero().flatten().tolist()) <= set(visited)


class TestPyTorch:
    def test_operators_keep_their_promises(self) -> None:
        z, x = separated(1, 300, 520, 40)
        bias = -torch.nn.functional.softplus(z).sum(-1)
        lse, peaks = operators.logsumexp(x, z, bias, "triton", True)
        assert peaks.shape == (1, 10, 5)
        backward = (torch.ones_like(lse), x, z, bias, lse, peaks, True, True, "triton")
        for operator, given in [
            (operators.logsumexp, (x, z, bias, "triton", True)),
            (operators.logsumexp, (x, z, bias, "triton", False)),
            (operators.logsumexp_backward, backward),
        ]:
            torch.library.opcheck(operator, given, test_utils=("test_schema", "test_faketensor"))

    @pytest.mark.parametrize("dynamic", [False, True])
    def test_compiled(
        self, dynamic: bool, walks: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Found by an import, which is no part of a compiled call on a device.
        monkeypatch.setattr(dispatch, "_interprets", lambda: True)
        z, x = separated(1, 300, 520, 40)

        def loss(z: Tensor, x: Tensor) -> Tensor:
            return sw.set_cross_entropy(z, x, impl="triton")

        compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        leaf = z.clone().requires_grad_()
        (grad,) = torch.autograd.grad(compiled(leaf, x), leaf)
        assert walks
        assert walks[0][0] < walks[0][1]
        torch.testing.assert_close(grad, gradients(z, x)[0], rtol=1e-4, atol=1e-4)

    def test_transformed(self, walks: list[tuple[int, int]]) -> None:
        z, x = separated(2, 300, 520, 40)

        def mapped(skip: bool) -> Tensor:
            def loss(z: Tensor, x: Tensor) -> Tensor:
                return sw.set_cross_entropy(z, x, impl="triton", skip_negligible=skip)

            return torch.func.vmap(torch.func.grad(loss))(z, x)

        torch.testing.assert_close(mapped(True), mapped(False))
        assert len(walks) == 1
        assert walks[0][0] < walks[0][1]

    @pytest.mark.parametrize("temperature", [1.0, 0.5], ids=["fused", "general"])
    def test_second_derivatives(self, temperature: float) -> None:
        z, x = confused(1, 130, 140, 6)
        results = []
        for impl in ("triton", "reference"):
            leaf, weight = z.clone().requires_grad_(), torch.ones(1, 130, requires_grad=True)
            value = sw.set_cross_entropy(
                leaf,
                x,
                weight=weight,
                temperature=temperature,
                impl=impl,  # type: ignore[arg-type]
            )
            grads = torch.autograd.grad(value, (leaf, weight), create_graph=True)
            mixture = grads[0].sin().sum() + grads[1].sum()
            results.append([*grads, *torch.autograd.grad(mixture, (leaf, weight))])
        torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/skipping.py without its clock, and without bfloat16; see tests/test_triton.py."""
    script = Path(__file__).parent.parent / "benchmarks" / "skipping.py"
    measure = runpy.run_path(str(script))["measure"]
    monkeypatch.setitem(measure.__globals__, "seconds", lambda step, device: 0.001)
    monkeypatch.setitem(measure.__globals__, "PRECISIONS", {"tf32": torch.float32})
    rows = list(measure((1, 160, 64), "cpu"))
    assert len(rows) == 3 * 2
    assert all(row["equal"] and row["on_ms"] == row["off_ms"] == 1.0 for row in rows)
    # Blocks of 128 and 64: in the same order, each of the latter needs one of the former.
    share = {"random": 1.0, "confident, same order": 0.5, "confident, random order": 1.0}
    for row in rows:
        walks = ["logits", "target"] if row["gradients"] == "both" else ["logits"]
        assert row["visited"] == dict.fromkeys(walks, share[row["data"]])


def test_small_calls_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    shape = skipping.peaks_shape
    assert shape(1, 32768, 32768, 256) == (1, 1024, 128)
    assert shape(8, 4096, 4096, 64) is None
    assert shape(2**20, 64, 64, 256) is None
    assert shape(1, 10**6, 10**6, 3) is None
    assert shape(1, 10**6, 10**6, 8) is None  # lists would be larger than the sets
