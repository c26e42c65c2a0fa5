"""The chunked engine against the dense one: values, both derivatives, every edge of a tile."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.kernels import chunked, dispatch, operators, reference

TILE_KEYS, TILE_SCORES = 4, 12


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles so small that tiny inputs cross their edges in every direction."""
    monkeypatch.setattr(chunked, "TILE_KEYS", TILE_KEYS)
    monkeypatch.setattr(chunked, "TILE_SCORES", TILE_SCORES)


def _operands(B: int, M: int, N: int, F: int = 3, masked: bool = False) -> list[Tensor]:
    generator = torch.Generator().manual_seed(B * 1000 + M * 100 + N)
    shapes = [(B, M, F), (B, N, F), (B, N)]
    queries, keys, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes
    )
    if masked:
        bias[:, 1:] = bias[:, 1:].masked_fill(
            torch.rand(B, N - 1, generator=generator) < 0.5, -torch.inf
        )
    return [t.requires_grad_() for t in (queries, keys, bias)]


def compare_engines(operands: list[Tensor]) -> None:
    """Values, gradients and gradients of gradients of both engines agree to rounding."""
    close: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
    values, grads, second = [], [], []
    engine: Any
    for engine in ("reference", "chunked"):
        value = dispatch.logsumexp(*operands, engine, skip_negligible=True)
        weights = torch.linspace(0.5, 2, value.numel(), dtype=value.dtype).reshape(value.shape)
        weights.requires_grad_()
        grad = torch.autograd.grad((value * weights).sum(), operands, create_graph=True)
        finite = torch.isfinite(operands[2])
        mixture = grad[0].sin().sum() + grad[1].cos().sum() + grad[2][finite].square().sum()
        values.append(value)
        grads.append(grad)
        second.append(torch.autograd.grad(mixture, [*operands, weights]))
    torch.testing.assert_close(values[1], values[0], **close)
    for pair in (grads, second):
        for ours, dense in zip(pair[1], pair[0], strict=True):
            torch.testing.assert_close(ours, dense, **close)


EDGES = [1, TILE_KEYS - 1, TILE_KEYS, TILE_KEYS + 1, 2 * TILE_KEYS, 2 * TILE_KEYS + 1]


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("N", EDGES)
@pytest.mark.parametrize("M", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("B", [1, 13])
def test_engines_agree_around_every_tile_edge(B: int, M: int, N: int) -> None:
    compare_engines(_operands(B, M, N))
    if N > 1:
        compare_engines(_operands(B, M, N, masked=True))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("N", EDGES)
def test_argmax_agrees(N: int) -> None:
    operands = _operands(3, 7, N, masked=N > 1)
    torch.testing.assert_close(operators.argmax(*operands, "chunked"), reference.argmax(*operands))


@pytest.mark.parametrize("edge", [-1, 0, 1])
def test_engines_agree_around_the_real_tile_edges(edge: int) -> None:
    compare_engines(_operands(1, 5, chunked.TILE_KEYS + edge))
    compare_engines(_operands(1, chunked.TILE_SCORES // chunked.TILE_KEYS + edge, 520))


def _require_caught(monkeypatch: pytest.MonkeyPatch, name: str, position: int) -> None:
    """One coefficient of a pass off by a millionth, and the comparison fails."""
    honest = getattr(chunked, name)

    def corrupted(*args: Any) -> tuple[Tensor, ...]:
        grads = list(honest(*args))
        grads[position][0, 0] *= 1 + 1e-6
        return tuple(grads)

    monkeypatch.setattr(chunked, name, corrupted)
    with pytest.raises(AssertionError, match="not close"):
        compare_engines(_operands(2, 5, 6))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("position", range(3), ids=["d_queries", "d_keys", "d_bias"])
def test_a_corrupted_backward_is_caught(position: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _require_caught(monkeypatch, "logsumexp_backward", position)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("position", range(4), ids=["d_grad", "d_queries", "d_keys", "d_bias"])
def test_a_corrupted_double_backward_is_caught(
    position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _require_caught(monkeypatch, "logsumexp_double_backward", position)


slow = partial(pytest.param, marks=pytest.mark.slow)
DIRECTED: list[tuple[Any, dict[str, Any]]] = [
    (sw.set_cross_entropy, {}),
    (sw.set_cross_entropy, {"temperature": 0.5}),
    (sw.set_average, {}),
    (sw.set_average, {"directed": False}),
    (sw.hausdorff, {}),
    (sw.hausdorff, {"directed": False}),
]
LOSSES: list[Any] = [
    (sw.ordered_cross_entropy, {}),
    (sw.assignment_cross_entropy, {}),
    *((loss, {"impl": "chunked", **options}) for loss, options in DIRECTED[:-1]),
    slow(sw.hausdorff, {"impl": "chunked", "directed": False}),  # as the set average
    # Whose derivatives are autograd's own; the first tier compares the chunked ones with them.
    *(slow(loss, {"impl": "reference", **options}) for loss, options in DIRECTED),
]
FAMILIES = [
    sw.Features(sw.Bernoulli(3)),
    slow(sw.Features(sw.Categorical(3), sw.Categorical(2, scored_as="bernoulli"))),
    slow(sw.Features(sw.Gaussian(2, scale=0.7), sw.Bernoulli(1, weight=0.5))),
]


@pytest.mark.parametrize("masked", [slow(False), True], ids=["bare", "masked"])
@pytest.mark.parametrize("features", FAMILIES, ids=["bernoulli", "categorical", "mixed"])
@pytest.mark.parametrize(("loss", "options"), LOSSES, ids=lambda v: getattr(v, "__name__", str(v)))
def test_first_and_second_derivatives(
    loss: Any,
    options: dict[str, Any],
    features: sw.Features,
    masked: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """float64 gradcheck and gradgradcheck of every loss, to outputs, targets and weights."""
    # The time goes with the square of the numbers: sets of three, whose keys are in two tiles.
    monkeypatch.setattr(chunked, "TILE_KEYS", 2)
    monkeypatch.setattr(chunked, "TILE_SCORES", 6)
    generator = torch.Generator().manual_seed(1)
    B, size = 2, 3
    logits = torch.randn(B, size, features.width, generator=generator, dtype=torch.float64)
    # Soft targets inside [0, 1], so that the numerical differences stay inside as well.
    target = (
        torch.rand(B, size, features.width, generator=generator, dtype=torch.float64) * 0.8 + 0.1
    )
    weight = torch.rand(B, size, generator=generator, dtype=torch.float64) + 0.5
    valid = torch.tensor([[1, 0, 1], [1, 0, 0]]).bool() if masked else None
    arguments = [t.requires_grad_() for t in (logits, target, weight)]

    def function(z: Tensor, x: Tensor, w: Tensor) -> Tensor:
        return loss(
            z,
            x,
            features,
            weight=w,
            input_valid=valid,
            target_valid=valid,
            reduction="none",
            **options,
        )

    assert torch.autograd.gradcheck(function, arguments)
    assert torch.autograd.gradgradcheck(function, arguments)
