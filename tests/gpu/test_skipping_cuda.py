"""Blocks of pairs that gradients leave out on a real device; see tests/kernels/test_skipping.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from cuda_losses import loss_and_both_gradients
from splits import set_sm_count, watch_visits

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch.compile and the search for synchronisations warn of themselves.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def precision() -> Iterator[Callable[[str], None]]:
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, int]]:
    """Those that have a list, as small sets have here too."""
    from setwise.kernels.triton import skipping

    monkeypatch.setattr(skipping, "MIN_PRODUCTS", 0)
    return watch_visits(monkeypatch)


def left_out_most(visits: list[tuple[Tensor, int]]) -> bool:
    return all(visited < 0.5 * everything for visited, everything in visits)


def separated(N: int, F: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Confident outputs in the order of their targets, each wrong in one feature."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 2, (1, N, F), generator=generator).float()
    z = 12 * (2 * x - 1) + torch.randn(x.shape, generator=generator)
    z[..., 0] *= -1
    return z.to("cuda", dtype).requires_grad_(), x.to("cuda", dtype).requires_grad_()


# Features in one tile, in several, in one of their own, and in several results; precision;
# temperature, which takes the general way unless it is 1; whether there are masks.
SKIPPED = [
    (F, precision, 1.0, False)
    for F in (40, 100, 256, 520)
    for precision in ("highest", "high", "medium", "bfloat16")
]
SKIPPED += [(F, precision, 0.5, True) for F in (40, 256) for precision in ("highest", "medium")]
SKIPPED += [(100, "high", 0.5, False), (256, "medium", 1.0, True), (256, "bfloat16", 1.0, True)]
SKIPPED += [(301, "high", 1.0, True), (301, "medium", 0.5, False), (320, "bfloat16", 1.0, True)]


@pytest.mark.parametrize(("F", "kind", "temperature", "masked"), SKIPPED, ids=str)
def test_skipping_changes_less_than_rounding(
    F: int,
    kind: str,
    temperature: float,
    masked: bool,
    visits: list[tuple[Tensor, int]],
    precision: Callable[[str], None],
) -> None:
    """Where most tiles are left out, and loops are split."""
    N, dtype = 2048, torch.bfloat16 if kind == "bfloat16" else torch.float32
    precision("highest" if kind == "bfloat16" else kind)
    z, x = separated(N, F, dtype)
    options: dict[str, Any] = {"temperature": temperature}
    if masked:
        position = torch.arange(N).cuda()
        options |= {
            "input_valid": (position % 5 > 0)[None],
            "target_valid": (position % 5 > 0)[None],
            "weight": (position % 7).float()[None],
        }
    on = loss_and_both_gradients(z, x, **options)
    assert len(visits) == 2
    assert left_out_most(visits)
    off = loss_and_both_gradients(z, x, skip_negligible=False, **options)
    assert len(visits) == 2
    assert torch.equal(on[0], off[0])
    for got, all_tiles in zip(on[1:], off[1:], strict=True):
        assert all_tiles.abs().max() > 0
        allowed = torch.finfo(dtype).eps * all_tiles.abs().max()
        assert (got - all_tiles).abs().max() <= allowed
    for _ in range(5):
        again = loss_and_both_gradients(z, x, **options)
        assert all(torch.equal(a, b) for a, b in zip(again, on, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.5], ids=["fused", "general"])
def test_skipping_in_whole_loops(
    temperature: float, visits: list[tuple[Tensor, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_sm_count(monkeypatch, 1)
    z, x = separated(2048, 40)
    on, off = (
        loss_and_both_gradients(z, x, temperature=temperature, skip_negligible=skip)
        for skip in (True, False)
    )
    assert len(visits) == 2
    assert left_out_most(visits)
    torch.testing.assert_close(on, off, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("where", [0, 1], ids=["input", "target"])
def test_a_nan_is_not_skipped(where: int, visits: list[tuple[Tensor, int]]) -> None:
    leaves = separated(2048, 40)
    with torch.no_grad():
        leaves[where][0, 7, 3] = torch.nan
    on, off = (loss_and_both_gradients(*leaves, skip_negligible=skip) for skip in (True, False))
    assert len(visits) == 2
    assert on[1].isnan().all()
    assert all(torch.equal(a.isnan(), b.isnan()) for a, b in zip(on, off, strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.5], ids=["fused", "general"])
def test_lists_in_a_cuda_graph(
    temperature: float, visits: list[tuple[Tensor, int]], precision: Callable[[str], None]
) -> None:
    """Made anew in each replay: captured where every tile matters, replayed where few do."""
    precision("medium")
    z, x = separated(2048, 256)
    confident = z.detach().clone()
    with torch.no_grad():
        z.zero_()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            loss_and_both_gradients(z, x, temperature=temperature)
    torch.cuda.current_stream().wait_stream(side)
    visits.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = loss_and_both_gradients(z, x, temperature=temperature)
    graph.replay()
    assert len(visits) == 2
    assert all(visited == everything for visited, everything in visits)
    with torch.no_grad():
        z.copy_(confident)
    graph.replay()
    assert left_out_most(visits)
    expected = loss_and_both_gradients(z, x, temperature=temperature)
    assert all(torch.equal(a, b) for a, b in zip(captured, expected, strict=True))


@pytest.fixture
def no_synchronisation() -> Iterator[Callable[[], None]]:
    """Call it, and from then on waiting for the device is an error."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("temperature", [1.0, 0.5], ids=["fused", "general"])
def test_the_host_does_not_wait_for_lists_of_tiles(
    temperature: float, visits: list[tuple[Tensor, int]], no_synchronisation: Callable[[], None]
) -> None:
    z, x = separated(2048, 40)
    weight = torch.ones(1, 2048).cuda()
    no_synchronisation()
    loss_and_both_gradients(z, x, temperature=temperature, weight=weight)
    assert len(visits) == 2
