"""Kernels of likelihoods and transport, compiled.

kernels/test_fused_likelihood.py and test_fused_matchings.py interpret them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from fused_cases import ELEMENTS, known_tapes
from likelihood_cases import judge_likelihood
from matchings import random_problem
from setwise.kernels import bethe, permanent, sinkhorn
from setwise.kernels.matchings import sum_matchings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
# Shapes of one program a set, and of several; the largest sets have more elements than a tile.
SHAPES = [(50, 1, 1), (50, 9, 9), (40, 5, 30), (8, 70, 70), (5, 130, 300), (3, 300, 300)]


def problem(B: int, M: int, N: int, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    scores, rows, columns = random_problem(M + N, B, M, N, scale)
    odds = torch.randn(B, N, generator=torch.Generator().manual_seed(B)).double()
    return scores.cuda(), odds.cuda(), rows.cuda(), columns.cuda()


@pytest.mark.parametrize("record", [True, False])
@pytest.mark.parametrize(("M", "N"), [(1, 1), (4, 7), (9, 9), (7, 5), (9, 30), (13, 14), (16, 16)])
def test_exact(M: int, N: int, record: bool) -> None:
    scores, odds, rows, columns = problem(5 if M > 12 else 300, M, N, 3.0)
    value, pairs = permanent.log_permanent(scores + odds.unsqueeze(1), rows, columns, record)
    args = (scores.float(), odds.float(), None, rows, columns)
    got, got_pairs, used, settled, _ = sum_matchings(*args, "exact", record)
    assert settled.all()
    torch.testing.assert_close(got.double(), value, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got_pairs.double(), pairs, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(used.double(), pairs.sum(1), rtol=1e-4, atol=1e-5)


def test_many_programs_do_not_keep_a_set_from_settling() -> None:
    """Sets of ten programs, whose numbers are large: each program has some rounding to report."""
    features = sw.Features(sw.Gaussian(92))
    generator = torch.Generator().manual_seed(0)
    target = features.random_targets((16, 300), generator)
    outputs = torch.randn(16, 300, 92, generator=generator)
    options: dict[str, Any] = {"method": "bethe", "return_settled": True, "reduction": "none"}
    right, settled = sw.set_likelihood(outputs, target, features, **options)
    got, quiet = sw.set_likelihood(outputs.cuda(), target.cuda(), features, **options)
    assert settled.all()
    assert quiet.all()
    torch.testing.assert_close(got.cpu(), right, rtol=1e-5, atol=1e-3)


# Also several sets of a group, few sets of many programs, and sets of very many outputs.
@pytest.mark.parametrize("exclusivity", [None, 0.7])
@pytest.mark.parametrize("scale", [0.5, 3.0])
@pytest.mark.parametrize(
    "shape", [*SHAPES, (60, 120, 120), (100, 200, 300), (3, 200, 512), (2, 40, 600)], ids=str
)
def test_bethe(shape: tuple[int, int, int], scale: float, exclusivity: float | None) -> None:
    scores, odds, rows, columns = problem(*shape, scale)
    shared = None if exclusivity is None else scores.new_full(shape[:1], exclusivity)
    value, pairs, use, settled, _ = bethe.bethe(scores, odds, shared, rows, columns)
    shared = None if shared is None else shared.float()
    args = (scores.float(), odds.float(), shared, rows, columns)
    got, got_pairs, used, quiet, answers = sum_matchings(*args, "bethe", True)
    again = sum_matchings(*args, "bethe", True)
    assert all(map(torch.equal, again, (got, got_pairs, used, quiet, answers)))
    both = settled & quiet
    assert both.any()  # float64 has more rounds
    torch.testing.assert_close(got.double()[both], value[both], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(got_pairs.double()[both], pairs[both], rtol=0, atol=2e-3)
    torch.testing.assert_close(used.double()[both], use[both], rtol=0, atol=5e-3)


@pytest.mark.parametrize("scale", [300.0, 3000.0])
@pytest.mark.parametrize("shape", [(50, 4, 6), (20, 60, 80), (5, 100, 300)], ids=str)
def test_scores_that_are_far_apart(shape: tuple[int, int, int], scale: float) -> None:
    """Of many more bits than float32 has powers of 2; some sets are left to logarithms."""
    scores, odds, rows, columns = problem(*shape, scale)
    odds *= scale
    value, pairs, _, settled, _ = bethe.bethe(scores, odds, None, rows, columns)
    args = (scores.float(), odds.float(), None, rows, columns)
    got, got_pairs, _, quiet, _ = sum_matchings(*args, "bethe", True)
    both = settled & quiet
    assert both.double().mean() >= 0.8
    torch.testing.assert_close(got.double()[both], value[both], rtol=1e-5, atol=1e-3)
    torch.testing.assert_close(got_pairs.double()[both], pairs[both], rtol=0, atol=5e-3)


@pytest.mark.parametrize("exclusivity", [None, 0.7])
@pytest.mark.parametrize("shape", [(50, 9, 9), (40, 5, 30), (8, 70, 70), (60, 120, 300)], ids=str)
def test_a_score_that_is_no_number_is_not_hidden(
    shape: tuple[int, int, int], exclusivity: float | None
) -> None:
    """Nor does it change other sets, of which several are the work of the same programs."""
    scores, odds, rows, columns = problem(*shape, 1.0)
    last = shape[0] - 1
    rows[[0, last]] = columns[[0, last]] = True  # what is impossible is not looked at
    shared = None if exclusivity is None else scores.new_full(shape[:1], exclusivity).float()
    args = (odds.float(), shared, rows, columns)
    value, pairs, _, settled, _ = sum_matchings(scores.float(), *args, "bethe", True)
    scores[[0, last], 0, 0] = torch.nan
    got, got_pairs, _, still, _ = sum_matchings(scores.float(), *args, "bethe", True)
    assert got[[0, last]].isnan().all()
    assert not still[[0, last]].any()
    for now, before in ((got, value), (got_pairs, pairs), (still, settled)):
        assert torch.equal(now[1:last], before[1:last])


# Also tall sets, and so many that a group of programs takes several, with many rows each or few.
@pytest.mark.parametrize("missing", [None, 0.7])
@pytest.mark.parametrize(
    "shape", [*SHAPES, (4, 300, 5), (200, 100, 40), (400, 70, 70), (2, 40, 3000)], ids=str
)
def test_transport(shape: tuple[int, int, int], missing: float | None) -> None:
    scores, _, rows, columns = problem(*shape, 2.0)
    some = rows.any(1) & columns.any(1)
    a, b = (valid[some].double() / valid[some].sum(1, keepdim=True) for valid in (rows, columns))
    costs = scores[some].square()
    value, plan, settled, g = sinkhorn.transport(costs, a, b, 1.0, missing)
    args = (costs.float(), a.float(), b.float(), 1.0, missing)
    found = sinkhorn.transport(*args)
    assert all(map(torch.equal, sinkhorn.transport(*args), found))
    got, got_plan, quiet, potentials = found
    both = settled & quiet
    assert both.double().mean() >= 0.7
    torch.testing.assert_close(got.double()[both], value[both], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got_plan.double()[both], plan[both], rtol=1e-3, atol=1e-5)
    # Where no mass may be missing, all potentials may differ by the same.
    apart = torch.where(b > 0, potentials.double() - g, 0.0)
    apart = torch.where(b > 0, apart - (b * apart).sum(1, keepdim=True), 0.0)
    assert apart[both].abs().max() < 1e-2


@pytest.mark.parametrize("method", ["exact", "bethe"])
def test_extreme_scores_stay_finite(method: str) -> None:
    generator = torch.Generator().manual_seed(0)
    for M, N in ((3, 3), (3, 5)):
        scores = torch.randint(-1, 2, (200, M, N), generator=generator).float() * 1e4
        odds = torch.randint(-1, 2, (200, N), generator=generator).float() * 1e4
        rows, columns = torch.ones(200, M) > 0, torch.ones(200, N) > 0
        args = [t.cuda() for t in (scores, odds, rows, columns)]
        value, pairs, used, *_ = sum_matchings(*args[:2], None, *args[2:], method, True)
        exact = permanent.log_permanent(
            (args[0] + args[1].unsqueeze(1)).double(), *args[2:], record=False
        )[0]
        for found in (value, pairs, used):
            assert found.isfinite().all()
        if method == "exact":
            # Relative to the scores, of which little may be left.
            torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (sw.set_likelihood, {"method": "exact"}),
        (sw.set_likelihood, {"method": "bethe"}),
        (sw.transport_cross_entropy, {}),
    ],
)
def test_losses_and_their_gradients(loss: Any, options: dict[str, Any]) -> None:
    """Through masks, presence and weights, against float64, which takes the PyTorch code."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 9, 6, generator=generator).cuda()
    target = torch.rand(20, 7, 6, generator=generator).round().cuda()
    presence = torch.randn(20, 9, generator=generator).cuda()
    given = {
        "input_valid": torch.randint(7, 10, (20,), generator=generator).cuda(),
        "target_valid": torch.randint(0, 8, (20,), generator=generator).cuda(),
        "reduction": "none",
    }
    found = []
    for dtype in (torch.float64, torch.float32):
        leaves = [t.to(dtype).requires_grad_() for t in (logits, presence)]
        value, settled = loss(
            leaves[0], target.to(dtype), presence=leaves[1], return_settled=True, **given, **options
        )
        grads = torch.autograd.grad(value.sum(), leaves, create_graph=True)
        (second,) = torch.autograd.grad(grads[0].square().sum(), leaves[0])
        found.append((value, *grads, second, settled))
    right, got = found
    both = right[-1] & got[-1]
    assert both.sum() >= 15
    for a, b in zip(got[:-1], right[:-1], strict=True):
        torch.testing.assert_close(a[both].double(), b[both], rtol=2e-3, atol=1e-3)


WHOLE = {"masked": True, "weighted": True, "present": True, "reduction": "none"}


@pytest.mark.parametrize("options", [{}, WHOLE], ids=["plain", "all options"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_small_sets_from_elements_to_gradients(element: str, options: dict[str, Any]) -> None:
    """Computed, recorded and played."""
    from setwise.kernels.triton import tapes

    tapes.forget()
    judge_likelihood(ELEMENTS[element], 9, 9, "cuda", 2e-5, method="exact", **options)
    assert known_tapes() == ["tape"] * 2


@pytest.mark.parametrize(
    ("method", "M", "N", "options"),
    [
        ("exact", 5, 40, WHOLE),
        ("exact", 12, 14, {"present": True, "reduction": "sum"}),
        ("exact", 2, 64, {"masked": True}),
        ("bethe", 3, 5, WHOLE),
        ("bethe", 3, 60, {"present": True}),
    ],
)
def test_small_sets_of_other_shapes(method: str, M: int, N: int, options: dict[str, Any]) -> None:
    tol = 2e-5 if method == "exact" else 5e-3  # float64 has more rounds
    judge_likelihood(ELEMENTS["boxes"], M, N, "cuda", tol, method=method, **options)


def test_large_logits_and_a_nan() -> None:
    features, generator = ELEMENTS["boxes"], torch.Generator().manual_seed(0)
    x = features.random_targets((6, 5), generator).cuda()
    z = torch.randint(-1, 2, (6, 7, features.width), generator=generator).float().cuda() * 1e4
    z.requires_grad_()
    value = sw.set_likelihood(z, x, features, method="exact", reduction="none")
    (gradient,) = torch.autograd.grad(value.sum(), z)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    with torch.no_grad():
        z[2, 3, 1] = torch.nan
        value = sw.set_likelihood(z, x, features, method="exact", reduction="none")
    assert value.isnan().tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (sw.set_likelihood, {"method": "exact"}),
        (sw.set_likelihood, {"method": "exact", "features": sw.Features(sw.Gaussian(6))}),
        (sw.set_likelihood, {"method": "exact", "features": sw.Features(sw.Categorical(6))}),
        (sw.set_likelihood, {"method": "bethe"}),
        (sw.transport_cross_entropy, {}),
        (sw.assignment_cross_entropy, {}),
    ],
)
def test_a_graph_can_hold_it(loss: Any, options: dict[str, Any]) -> None:
    """Nothing waits for the device: forward and backward are captured, and replayed on new data."""
    generator = torch.Generator("cuda").manual_seed(0)
    shape = (3, 9, 6) if options.get("method") == "exact" else (3, 80, 6)
    logits = torch.randn(shape, generator=generator, device="cuda").requires_grad_()
    features = options.get("features", sw.Features(sw.Bernoulli(6)))
    target = features.random_targets(shape[:2], generator)

    def step() -> tuple[Tensor, Tensor]:
        value = loss(logits, target, **options)
        # Detached: a graph that is kept would tie the leaf to the stream of the capture.
        return value.detach(), torch.autograd.grad(value, logits)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, gradient = step()
    with torch.no_grad():
        logits.copy_(torch.randn(shape, generator=generator, device="cuda"))
    graph.replay()
    expected = step()
    torch.testing.assert_close((value, gradient), expected)
