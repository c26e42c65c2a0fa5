"""The loops of the Triton engine by themselves, in Triton's interpreter."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch

from engine_cases import (
    EXACT,
    Shape,
    check_constants,
    compare,
    every_precision,
    operands,
    slow,
    value_and_gradients,
)
from setwise.kernels import operators, reference
from splits import set_sm_count
from tf32 import held_by_tf32

pytest.importorskip("triton")

from setwise.kernels.triton import tiles

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of log(0), for a loop over masked keys alone, and of 0/0, not used.
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
]


@pytest.fixture(autouse=True)
def ordered_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    check_constants(monkeypatch)


# Points (F <= 4) and products, in one block and in several of either side; features that fit a
# block (F <= 64), that take several, and whose gradient does (F > 256).
SHAPES = [(2, 5, 7, 1), (1, 16, 32, 3), (1, 9, 300, 4), (2, 5, 7, 5), (2, 70, 140, 16)]
SHAPES += [(2, 70, 140, 70), (1, 20, 70, 300)]
# Loops long enough to be split, over the keys and over the queries.
LONG = [(1, 5, 1030, 2), (1, 520, 5, 3), (1, 130, 600, 33), (1, 20, 600, 70), (1, 300, 66, 70)]
BARE = [(shape, 3, False) for shape in SHAPES + LONG[2:]]
MASKED = [(shape, 50, True) for shape in SHAPES + LONG]


# Of these one layout is in the first tier, by `PRECISE` and, in test_triton.py, `SPLIT`.
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
