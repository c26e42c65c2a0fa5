"""Gradients of more features than a program can sum up, in Triton's interpreter.

tests/gpu has them compiled.
"""

from __future__ import annotations

import inspect
import itertools
import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.kernels import matmul_precision
from splits import set_sm_count, watch_splits, watch_visits
from tf32 import held_by_tf32

pytest.importorskip("triton")

from setwise.kernels.triton import plans, skipping, tiles
from setwise.kernels.triton.launch import Launcher

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of log(0), for a loop over masked keys alone.
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
]
CPU = torch.device("cpu")
# The float32 of tf32 does not have rows of 16 bytes, that of float16 does, and the reverse.
slow = partial(pytest.param, marks=pytest.mark.slow)
SHAPES = [slow((2, 70, 140, 301)), (1, 140, 70, 260)]
KINDS = {"float32": 1e-5, "tf32": 2e-3, "float16": 2e-3}


@pytest.fixture
def panels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Panels of one tile, if there are several; the first row of each that is worked on."""
    honest, chosen, seen = plans.panel_tiles, Launcher.__call__, []

    def narrow(*args: Any) -> tuple[tiles.Tiles, tiles.Tiles, int]:
        weights, loop, _ = honest(*args)
        return weights, loop, weights.a

    def watched(self: Launcher, grid: Any, tensors: Any, numbers: Any) -> None:
        if self._kernel.__name__ == "weights":
            seen.append(numbers[-2])
        chosen(self, grid, tensors, numbers)

    monkeypatch.setattr(plans, "panel_tiles", narrow)
    monkeypatch.setattr(Launcher, "__call__", watched)
    set_sm_count(monkeypatch, 1)
    return seen


def sets(B: int, M: int, N: int, F: int, separated: bool = False) -> tuple[Tensor, Tensor]:
    """Logits and target; separated ones are confident, in order, and each has a wrong feature."""
    generator = torch.Generator().manual_seed(M + N + F)
    x = torch.rand(B, M, F, generator=generator)
    z = torch.randn(B, N, F, generator=generator)
    if separated:
        x = x.round()
        z += 12 * (2 * x[:, torch.arange(N) * M // N] - 1)
        z[..., 0] *= -1
    return z, x


def gradients(z: Tensor, x: Tensor, **options: Any) -> list[Tensor]:
    leaves = [t.detach().clone().requires_grad_() for t in (z, x)]
    value = sw.set_cross_entropy(*leaves, reduction="none", **options)
    scale = torch.linspace(1, 2, len(value), dtype=value.dtype)
    return [value.detach(), *torch.autograd.grad(value, leaves, scale)]


def agree(z: Tensor, x: Tensor, kind: str, weight: Tensor | None = None, **options: Any) -> None:
    """To float64 as near as the dense float32 is, and what the kind may add."""
    if kind == "float16":
        z, x = z.half(), x.half()
    elif kind == "tf32":
        z, x = held_by_tf32(z), held_by_tf32(x)
    ours = gradients(z, x, impl="triton", weight=weight, **options)
    usual = gradients(z.float(), x.float(), impl="reference", weight=weight, **options)
    if weight is not None:
        weight = weight.double()
    exact = gradients(z.double(), x.double(), impl="reference", weight=weight, **options)
    for got, plain, right in zip(ours, usual, exact, strict=True):
        largest = right.abs().max()
        error, allowed = ((t.double() - right).abs().max() / largest for t in (got, plain))
        assert error <= allowed + KINDS[kind]


@pytest.mark.parametrize("kind", ["float32", slow("tf32"), "float16"])  # tf32 is split below
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_panel_by_panel(
    shape: tuple[int, ...], kind: str, panels: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With masks and weights, to both sides; the last panel is not full."""
    if kind == "tf32":
        monkeypatch.setattr(matmul_precision, "dot_precision", lambda dtype: kind)
    B, M, N, _ = shape
    generator = torch.Generator().manual_seed(0)
    masks = {
        "input_valid": torch.rand(B, N, generator=generator) < 0.6,
        "target_valid": torch.rand(B, M, generator=generator) < 0.8,
    }
    masks["input_valid"][:, -1] = True
    agree(*sets(*shape), kind, torch.rand(B, M, generator=generator), **masks)
    # To the logits, then to the target.
    assert panels == [*range(0, N, 64), *range(0, M, 64)]


FEW, MANY = (1, 130, 140, 260), (1, 260, 270, 260)
SPLIT = [slow("float32", 1.0, FEW), ("tf32", 1.0, FEW)]
SPLIT += [slow("float32", 1.0, MANY), slow("tf32", 1.0, MANY), slow("tf32", 0.5, MANY)]


@pytest.mark.parametrize(("kind", "temperature", "shape"), SPLIT, ids=str)
def test_loops_that_are_split(
    kind: str, temperature: float, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul_precision, "dot_precision", lambda dtype: kind)
    set_sm_count(monkeypatch, 50)
    splits = watch_splits(monkeypatch)
    agree(*sets(*shape), kind, temperature=temperature)
    assert min(splits) > 1


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sm_count"), [("float32", 1), ("tf32", 50), ("float16", 1)])
def test_tiles_that_are_left_out(
    kind: str, sm_count: int, panels: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is visited lies side by side in memory; nothing of the rest is read."""
    level = "float32" if kind == "float32" else "tf32"
    monkeypatch.setattr(matmul_precision, "dot_precision", lambda dtype: level)
    monkeypatch.setattr(skipping, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(skipping, "MIN_ELEMENTS", 0)
    set_sm_count(monkeypatch, sm_count)
    visits, splits = watch_visits(monkeypatch), watch_splits(monkeypatch)

    empty = torch.empty

    def filled(*shape: Any, **options: Any) -> Tensor:
        memory = empty(*shape, **options)
        return memory.fill_(math.nan) if memory.is_floating_point() else memory

    monkeypatch.setattr(torch, "empty", filled)
    z, x = sets(2, 150, 180, 301, separated=True)
    if kind == "float16":
        z, x = z.half(), x.half()
    on, off = (gradients(z, x, impl="triton", skip_negligible=skip) for skip in (True, False))
    assert len(visits) == 2
    assert all(0 < visited < 0.75 * everything for visited, everything in visits)
    assert (max(splits) > 1) == (sm_count > 1)
    assert len(panels) > 4
    for got, everything in zip(on, off, strict=True):
        assert (got - everything).abs().max() <= 2**-24 * everything.abs().max()


@pytest.mark.parametrize("smem", [99 * 1024, 227 * 1024], ids=["RTX 4090", "H200"])
@pytest.mark.parametrize(
    ("precision", "kind"),
    [("float32", torch.float32), ("tf32", torch.float32), ("tf32", torch.float16)],
)
def test_what_a_panel_takes(
    precision: str, kind: torch.dtype, smem: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more memory than the sets, unless it is a tile; its products no more than is shared."""
    monkeypatch.setattr(tiles, "shared_memory", lambda device: smem)
    sizes = [1, 65, 129, 300, 513, 1024, 20000, 10**6]
    for n_a, n_c, F in itertools.product(sizes, sizes, [257, 1000, 5000]):
        weights, loop, rows = tiles.panel_tiles(CPU, 2, n_a, n_c, F, kind, precision)
        size = 6 if precision == "float32" else kind.itemsize
        assert rows % weights.a == 0
        assert rows < n_a + weights.a
        width = tiles.blocks_in(n_c, weights.c) * weights.c
        assert rows == weights.a or rows * width * size <= (n_a + n_c) * F * kind.itemsize
        assert weights.a == loop.a
        assert weights.c % loop.c == 0
        assert loop.stages >= 2
        assert tiles.panel_smem_bytes(loop, size) <= smem


@pytest.mark.parametrize("smem", [99 * 1024, 227 * 1024], ids=["RTX 4090", "H200"])
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_grids_of_the_largest_sets(
    precision: str, smem: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second dimension of a grid ends at 65535, the first at 2^31."""
    for module in (plans, tiles):
        monkeypatch.setattr(module, "shared_memory", lambda device: smem)
    largest = (2**31 - 1) // 272
    for n_a, n_c in itertools.product([1, largest], repeat=2):
        loop = inspect.unwrap(plans.gradients)(
            CPU, 1, n_a, n_c, 260, 272, torch.float32, precision,
            True, True, True, False, False, False, False,
        )  # fmt: skip
        assert loop.panels is not None
        for first, second, _ in (loop.grid, loop.panels.grid):
            assert first < 2**31
            assert second <= 65535


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_elements_are_padded_with_the_bias(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same launch; no copy is made after that."""
    monkeypatch.setattr(matmul_precision, "dot_precision", lambda dtype: "tf32")
    z, x = (t.to(dtype) for t in sets(1, 70, 70, 301))
    expected = gradients(z.double(), x.double(), impl="reference")[1]

    def refused(*args: Any) -> None:
        raise AssertionError("elements are padded once more")

    monkeypatch.setattr(plans, "round_and_pad", refused)
    z.requires_grad_()
    (found,) = torch.autograd.grad(sw.set_cross_entropy(z, x, impl="triton"), z)
    assert (found - expected).abs().max() <= 2e-3 * expected.abs().max()
