"""Clouds of points in Triton's interpreter, in blocks so small that few points fill all levels."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import setwise as sw
from setwise.kernels import clouds as shapes
from setwise.kernels import dispatch, operators

pytest.importorskip("triton")

import triton.language as tl

from clouds import KINDS, judge_argmax, judge_logsumexp, operands, points
from setwise.kernels.triton import clouds, pruned

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    pytest.mark.filterwarnings("ignore:(divide by zero|invalid value) encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:(overflow|All-NaN slice) encountered:RuntimeWarning"),
]

M, N = 17, 33


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine blocks of keys, five parents, three groups of them."""
    for name, size in (("BLOCK", 4), ("GROUP", 2), ("SAMPLES", 2), ("ROWS", 8)):
        monkeypatch.setattr(clouds, name, size)
    monkeypatch.setattr(shapes, "FEWEST_POINTS", 1)
    monkeypatch.setattr(shapes, "FEWEST_PAIRS", 1)
    always(monkeypatch, search=True)


def always(monkeypatch: pytest.MonkeyPatch, search: bool) -> None:
    monkeypatch.setattr(pruned, "ONE_IN", tl.constexpr(0 if search else 10**9))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("kind", "search"), [*((kind, True) for kind in KINDS), ("grid", False), ("uniform", False)]
)
def test_the_first_of_the_best(kind: str, search: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where many are equal: those of a grid."""
    always(monkeypatch, search)
    queries, keys, bias, sharpness = operands(kind, M, N, 2, seeded())
    if kind == "grid":
        bias, sharpness = bias.masked_fill(bias > 0, 0.0), torch.ones(1, 2)
    judge_argmax(queries, keys, bias, sharpness, same=True)


@pytest.mark.parametrize("upwards", [True, False])
def test_boxes_are_as_near_as_they_seem(upwards: bool) -> None:
    """Blocks of four equal keys, and queries as far from one as from the next: no box is in doubt.

    Of both, the key that comes first is wanted, whichever block it is in.
    """
    keys = torch.arange(12.0).repeat(4).reshape(1, 48, 1)
    keys = keys if upwards else 11 - keys
    queries = torch.arange(11.0).reshape(1, 11, 1) + 0.5
    found = clouds.argmax(queries, keys, torch.zeros(1, 48), torch.ones(1, 1))
    lower, upper = torch.arange(11), torch.arange(1, 12)
    assert torch.equal(found[0], lower if upwards else 11 - upper)


@pytest.mark.parametrize(
    ("kind", "F", "search"),
    [
        ("uniform", 1, True),
        ("surface", 3, True),
        ("clusters", 5, True),
        ("all around", 2, True),
        ("uniform", 5, False),
    ],
)
def test_sums_and_gradients(
    kind: str, F: int, search: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(monkeypatch, search)
    generator = seeded(F)
    grad = torch.randn(1, M, generator=generator)
    judge_logsumexp(*operands(kind, M, N, F, generator), grad)


def test_a_key_far_ahead_of_those_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """By more than float32 has room for: sums over all pairs have to begin again."""
    always(monkeypatch, search=False)
    queries, keys, bias, sharpness = operands("uniform", 9, 16, 2, seeded())
    bias[0, 5] = 300.0
    lse, *_ = judge_logsumexp(queries, keys, bias, 1 + 0 * sharpness, torch.ones(1, 9))
    assert (lse > 290).all()


def test_what_is_left_out() -> None:
    """Less than the cutoff of each sum; and something is, as soon as that allows it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clouds, "CUTOFF_BITS", 4)
        queries, keys, bias, sharpness = operands("line", M, N, 1, seeded())
        bias = bias.masked_fill(bias > 0, 0.0)
        lse, _, _ = clouds.logsumexp(queries, keys, bias, 0 * sharpness + 1000.0)
    exact = dispatch.logsumexp(queries, keys, bias, "reference", False, torch.tensor([1000.0]))
    missing = -torch.expm1(lse - exact)
    assert missing.max() < 2.0**-4
    assert missing.max() > 1e-5


def test_few_blocks_are_visited() -> None:
    """Of points on a line at most the own block and its neighbours."""
    x = torch.arange(64.0).reshape(1, 64, 1)
    sharpness, bias = torch.full((1, 1), 100.0), torch.zeros(1, 64)
    x_order, y_order, start = clouds._orders(x, x, bias, sharpness)
    assert x_order.tolist() == y_order.tolist() == [list(range(64))]
    rows, columns = clouds._cloud(x, x_order), clouds._cloud(x, y_order, bias)
    kept = clouds._count(rows, columns, sharpness, 0.0, False, start)
    assert columns.blocks == 16
    assert kept.max() <= 4


def test_boxes() -> None:
    """Of blocks and of parents; keys that are masked come last, and count for nothing."""
    generator = seeded()
    keys, bias = torch.randn(1, 13, 2, generator=generator), torch.zeros(1, 13)
    bias[0, 3:6] = -math.inf
    _, order, _ = clouds._orders(keys, keys, bias, torch.ones(1, 2))
    assert order[0, -3:].tolist() == [3, 4, 5]
    cloud = clouds._cloud(keys, order, bias)
    around = cloud.boxes[0].T
    sizes = [0, 4, 8, 10, 10]  # ten points, in blocks of four
    for block, (begin, end) in enumerate(pairwise(sizes)):
        members = keys[0, order[0, begin:end]]
        if len(members):
            expected = torch.cat([members.amin(0), members.amax(0), torch.zeros(1)])
            assert torch.equal(around[block], expected)
        else:
            assert around[block, -1] == -math.inf
    for parent in range(2):
        below = around[2 * parent : 2 * parent + 2]
        expected = torch.cat([below[:, :2].amin(0), below[:, 2:].amax(0)])
        assert torch.equal(cloud.parents[0, :, parent], expected)


def test_not_a_number_is_seen() -> None:
    """In a key by all queries; in a query by itself, to which all keys are equal."""
    queries, keys, bias, sharpness = operands("line", 12, 20, 2, seeded(1))
    keys[0, 7, 1] = math.nan
    bias[0, 7] = 0.0
    assert (clouds.argmax(queries, keys, bias, sharpness) == 7).all()
    assert clouds.logsumexp(queries, keys, bias, sharpness)[0].isnan().all()
    keys[0, 7, 1] = 0.5
    queries[0, 3, 0] = math.nan
    judged = clouds.argmax(queries, keys, bias, sharpness)
    assert judged[0, 3] == 0
    lse, terms, orders = clouds.logsumexp(queries, keys, bias, sharpness)
    assert lse[0].isnan().nonzero().flatten().tolist() == [3]
    ones = torch.ones(1, 12)
    found = clouds.logsumexp_backward(
        ones, queries, keys, bias, sharpness, terms, orders, True, True
    )
    assert found[0][0, 3].isnan().all()
    assert found[0][0, :3].isfinite().all()
    assert found[1].isnan().all()


def test_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the public door, with masks and weights, and twice differentiated."""
    engines: list[str] = []
    original = operators._engine
    monkeypatch.setattr(operators, "_engine", lambda name: engines.append(name) or original(name))
    generator = seeded(3)
    y, x = (points("surface", (2, n, 2), generator).requires_grad_() for n in (9, 7))
    options = {
        "input_valid": torch.tensor([9, 5]),
        "target_valid": torch.tensor([7, 4]),
        "weight": torch.rand(2, 7, generator=generator),
    }
    features = sw.Features(sw.Gaussian(2, scale=0.3))
    found = []
    for impl in ("triton", "reference"):
        value = sw.set_cross_entropy(y, x, features, impl=impl, **options)
        slopes = torch.autograd.grad(value, (y, x), create_graph=True)
        again = torch.autograd.grad(slopes[0].square().sum(), (y, x))
        nearest = sw.set_average(y, x, features, directed=False, impl=impl, **options)
        found.append([value, *slopes, *again, nearest])
    for ours, theirs in zip(*found, strict=True):
        assert_close(ours, theirs, rtol=1e-4, atol=1e-4 * theirs.abs().max().item())
    assert set(engines) == {"clouds"}


def test_what_a_compiler_is_told() -> None:
    """Shapes and types are those of the real ones."""
    queries, keys, bias, sharpness = operands("uniform", 5, 6, 2, seeded(), B=2)
    call = queries, keys, bias, "clouds", True, sharpness
    real = operators.logsumexp(*call)
    with torch._subclasses.FakeTensorMode() as mode:
        fake = operators.logsumexp(
            *(mode.from_tensor(t) if isinstance(t, Tensor) else t for t in call)
        )
    assert [(t.shape, t.dtype) for t in fake] == [(t.shape, t.dtype) for t in real]


def test_mapped() -> None:
    queries, keys, bias, sharpness = operands("uniform", 6, 9, 2, seeded(), B=2)

    def one(x: Tensor, y: Tensor, b: Tensor) -> Tensor:
        return dispatch.logsumexp(x[None], y[None], b[None], "triton", True, sharpness[0])[0]

    together = torch.func.vmap(one)(queries, keys, bias)
    alone = torch.stack([one(*t) for t in zip(queries, keys, bias, strict=True)])
    assert_close(together, alone, rtol=1e-5, atol=1e-5)


def test_which_calls_are_about_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "FEWEST_POINTS", 4)
    monkeypatch.setattr(shapes, "FEWEST_PAIRS", 40)
    x = torch.zeros(2, 4, 3)
    sharpness = torch.ones(3)
    assert shapes.suit(x, torch.zeros(2, 5, 3), sharpness)
    assert not shapes.suit(x, torch.zeros(2, 4, 3), sharpness)  # 32 pairs
    assert not shapes.suit(x, torch.zeros(2, 50, 3), sharpness[:2])  # one feature is multiplied
    assert not shapes.suit(x, torch.zeros(2, 50, 3), None)
    assert not shapes.suit(x[:, :3], torch.zeros(2, 50, 3), sharpness)
    wide = torch.zeros(2, 9, 9)
    assert not shapes.suit(wide, wide, torch.ones(9))
