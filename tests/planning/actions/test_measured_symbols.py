"""Symbols of measured features, held against what was measured."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.planning import ActionModel
from setwise.planning.actions import (
    MeasuredSymbols,
    UnknownSymbolError,
    agreement,
    fit_symbols,
)

# Slow: clusters are looked for. The example of MeasuredSymbols breaks when these do.
pytestmark = pytest.mark.slow

FEATURES = sw.Features(sw.Categorical(3), sw.Gaussian(1), sw.Angle(1))
NAMES = ["who", "height", "direction"]
QUARTER = math.pi / 2


def turned(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Things [T, 3, 2], each at one of two heights and four directions; one turns by a quarter."""
    generator = torch.Generator().manual_seed(seed)
    height = torch.randint(2, (count, 3), generator=generator)
    direction = torch.randint(4, (count, 3), generator=generator)
    before = torch.stack([height, direction], dim=-1)
    after = before.clone()
    which = torch.randint(3, (count,), generator=generator)
    rows = torch.arange(count)
    after[rows, which, 1] = (before[rows, which, 1] + 1) % 4
    return before, after


def seen(things: Tensor, shaking: float, seed: int) -> Tensor:
    """What is measured of things [T, 3, 2], in random order: [T, 3, 5]."""
    generator = torch.Generator().manual_seed(seed)
    noise = shaking * torch.randn(things.shape, generator=generator)
    height = 5.0 * things[..., :1] + 5.0 * noise[..., :1]
    direction = QUARTER * (things[..., 1:] + noise[..., 1:]) + 20 * math.pi
    sets = torch.cat([torch.eye(3).expand(len(things), 3, 3), height, direction], dim=-1)
    order = torch.rand(sets.shape[:2], generator=generator).argsort(-1)
    return sets[torch.arange(len(sets)).unsqueeze(-1), order]


@pytest.fixture(scope="module")
def symbols() -> MeasuredSymbols:
    before, after = turned(150, seed=0)
    return fit_symbols(seen(before, 0.07, 1), seen(after, 0.07, 2), FEATURES, names=NAMES)


def test_codes_are_what_was_measured(symbols: MeasuredSymbols) -> None:
    assert symbols.sizes == {"who": 3, "height": 2, "direction": 4}
    assert symbols.stable == 1.0
    things, _ = turned(100, seed=5)
    sets = torch.cat(
        [torch.eye(3).expand(100, 3, 3), 5.0 * things[..., :1], QUARTER * things[..., 1:]], dim=-1
    )
    codes = symbols.codes(sets)
    for feature, truth in ((1, things[..., 0]), (2, things[..., 1])):
        assert agreement(codes[..., feature].flatten(), truth.flatten()) == 1.0
    assert codes[..., 1].equal(things[..., 0])  # in order


def test_typical_elements_are_encoded_as_themselves(symbols: MeasuredSymbols) -> None:
    elements = [(who, height, way) for who in range(3) for height in range(2) for way in range(4)]
    decoded = symbols.decode(elements)
    assert symbols.encode(decoded.unsqueeze(0)) == [elements]
    assert symbols.decode([]).shape == (0, 5)
    with pytest.raises(ValueError, match="made of none of the symbols"):
        symbols.decode([(7, 0, 0)])


def test_a_full_turn_is_none(symbols: MeasuredSymbols) -> None:
    sets = symbols.decode([(0, 0, 0), (1, 1, 3)]).unsqueeze(0)
    further = sets + torch.tensor([0.0, 0.0, 0.0, 0.0, 2 * math.pi])
    assert symbols.encode(further) == symbols.encode(sets)


def test_what_is_like_nothing_seen_is_unknown(symbols: MeasuredSymbols) -> None:
    sets = symbols.decode([(0, 0, 0)]).unsqueeze(0)
    sets[..., 3] = 90.0
    with pytest.raises(UnknownSymbolError, match=r"height \[90.0\]: is like none of the 2"):
        symbols.encode(sets)


def test_what_is_no_number_is_refused(symbols: MeasuredSymbols) -> None:
    sets = symbols.decode([(0, 0, 0)]).unsqueeze(0)
    sets[..., 3] = math.nan
    with pytest.raises(ValueError, match="sets: must be finite"):
        symbols.encode(sets)


def test_sets_may_be_in_another_precision(symbols: MeasuredSymbols) -> None:
    before, after = turned(150, seed=0)
    double = seen(before, 0.07, 1).double()
    assert symbols.encode(double) == symbols.encode(double.float())
    found = fit_symbols(double, seen(after, 0.07, 2), FEATURES, names=NAMES)
    assert found.sizes == symbols.sizes


def test_actions_are_learned_from_them(symbols: MeasuredSymbols) -> None:
    before, after = turned(150, seed=0)
    recording = symbols.recording(seen(before, 0.07, 1), seen(after, 0.07, 2))
    model = ActionModel.learn(recording)
    assert [schema.name for schema in model.schemas] == ["change-direction"]
    [schema] = model.schemas
    assert len(schema.pairs[2, 3]) == 4  # each direction, and the next


def test_too_much_shaking_leaves_fewer_codes() -> None:
    before, after = turned(150, seed=0)
    found = fit_symbols(seen(before, 0.6, 1), seen(after, 0.6, 2), FEATURES, names=NAMES)
    assert found.sizes["direction"] < 4


def test_what_is_refused() -> None:
    sets = seen(turned(20, seed=0)[0], 0.05, 1)
    with pytest.raises(TypeError, match="features: expected the Features"):
        fit_symbols(sets, sets)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="expected Sights twice or tensors twice"):
        fit_symbols(sets, [1])  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"after: expected shape \[S, N, F\] with 5"):
        fit_symbols(sets, sets[0], FEATURES)
    with pytest.raises(ValueError, match="20 sets before, but 3 after"):
        fit_symbols(sets, sets[:3], FEATURES)
    with pytest.raises(ValueError, match="names: expected 3, one a feature, got 1"):
        fit_symbols(sets, sets, FEATURES, names=["x"])
    with pytest.raises(ValueError, match="names: expected different ones"):
        fit_symbols(sets, sets, FEATURES, names=["x", "x", "y"])
    with pytest.raises(TypeError, match="before: expected a floating-point tensor"):
        fit_symbols(sets.long(), sets, FEATURES)
