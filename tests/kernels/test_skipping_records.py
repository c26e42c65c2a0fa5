"""What forward passes record for gradients that leave out blocks of pairs, and what may be lost."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.kernels import matmul_precision, operators
from skipped_blocks import agree, confused, loss_and_gradients, separated
from splits import set_sm_count, watch_splits

pytest.importorskip("triton")

from setwise.kernels.triton import engine, skipping, tiles

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there the kernels are compiled"),
    # NumPy would have warned of log(0), for a loop over masked keys alone, and of NaN.
    pytest.mark.filterwarnings(
        "ignore:(divide by zero|invalid value|All-NaN slice) encountered:RuntimeWarning"
    ),
]


@pytest.fixture(autouse=True)
def small_sets_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "MIN_PRODUCTS", 0)
    monkeypatch.setattr(skipping, "MIN_ELEMENTS", 0)


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


def test_small_calls_record_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    shape = skipping.peaks_shape
    assert shape(1, 32768, 32768, 256) == (1, 2, 1024, 128)
    assert shape(8, 4096, 4096, 64) is None
    assert shape(2**20, 64, 64, 256) is None
    assert shape(1, 10**6, 10**6, 3) is None
    assert shape(1, 10**6, 10**6, 8) is None  # lists would be larger than the sets
