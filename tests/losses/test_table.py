"""The table of losses: by name or symbol, ours and a user's alike."""

from __future__ import annotations

import inspect
import runpy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import setwise as sw
from setwise.losses import LOSSES, Loss, find_loss, register_loss

OURS = {
    "ordered_cross_entropy": "H",
    "set_cross_entropy": "SH",
    "set_average": "A1H",
    "hausdorff": "H1H",
    "assignment_cross_entropy": "AH",
    "stable_matching_cross_entropy": "GS",
    "transport_cross_entropy": "OT",
    "set_likelihood": "LH",
}


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it, and what other tests registered is not seen."""
    ours = {name: entry for name, entry in LOSSES.items() if name in OURS}
    monkeypatch.setattr(LOSSES, "_entries", ours)


def squared(
    input: Tensor, target: Tensor, features: Any = None, *, power: float = 2.0, **options: Any
) -> Tensor:
    return sw.set_cross_entropy(input, target, features, **options) ** power


def test_every_loss_of_ours_is_there() -> None:
    assert {name: loss.symbol for name, loss in LOSSES.items()} == OURS
    assert sw.losses.LOSSES is LOSSES
    for name, loss in LOSSES.items():
        assert loss.function is getattr(sw, name)
        assert loss.name == name
        assert loss.label
    for column in ("symbol", "label", "colour"):
        assert len({getattr(loss, column) for loss in LOSSES.values()}) == len(OURS)


@pytest.mark.parametrize("name", OURS)
def test_losses_are_called_as_the_entry_promises(name: str) -> None:
    """One number per set, with features; and every option is an argument of the function."""
    loss = LOSSES[name]
    features = sw.Features(sw.Bernoulli(3))
    value = loss.function(torch.zeros(2, 4, 3), torch.ones(2, 4, 3), features, reduction="none")
    assert value.shape == (2,)
    assert set(loss.options) <= set(inspect.signature(loss.function).parameters)


@pytest.mark.parametrize("name", OURS)
def test_by_name_and_by_symbol(name: str) -> None:
    assert find_loss(name) is find_loss(OURS[name]) is LOSSES[name]


@pytest.mark.parametrize("lookup", [find_loss, LOSSES.__getitem__])
@pytest.mark.parametrize("name", ["chamfer", "sh", ""])
def test_an_unknown_name_lists_the_known_ones(lookup: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"loss: unknown {name!r}; known: .*") as error:
        lookup(name)
    assert all(known in str(error.value) for known in OURS)


def test_a_user_has_a_loss() -> None:
    entry = register_loss(squared, symbol="SH2", colour="#123abc", options=("power",))
    assert entry == Loss(squared, "SH2", "squared", "#123abc", ("power",))
    assert find_loss("squared") is find_loss("SH2") is entry
    assert list(LOSSES) == [*OURS, "squared"]


def test_a_user_need_not_say_more_than_the_function() -> None:
    entry = register_loss(squared)
    assert (entry.symbol, entry.label, entry.options) == ("squared", "squared", ())


def test_the_name_of_another_function_is_refused() -> None:
    def hausdorff() -> None: ...

    with pytest.raises(ValueError, match="hausdorff"):
        register_loss(hausdorff, symbol="mine")
    assert find_loss("hausdorff").function is sw.hausdorff


@pytest.mark.parametrize("symbol", ["SH", "set_cross_entropy"])
def test_the_symbol_of_another_loss_is_refused(symbol: str) -> None:
    """Or typing it would silently mean something else from now on."""
    with pytest.raises(ValueError, match=f"symbol '{symbol}' is taken, by set_cross_entropy"):
        register_loss(squared, symbol=symbol)
    assert "squared" not in LOSSES


def test_a_name_that_is_a_symbol_of_another_loss_is_refused() -> None:
    def SH() -> None: ...

    with pytest.raises(ValueError, match="is taken, by set_cross_entropy"):
        register_loss(SH, symbol="mine")


def test_a_file_may_be_run_twice(tmp_path: Path) -> None:
    """As in a notebook; the later definition counts."""
    file = tmp_path / "mine.py"
    text = "import setwise as sw\ndef mine(*args, **options):\n    return {}\n"
    for result in (1, 2):
        file.write_text(f"{text.format(result)}sw.losses.register_loss(mine, symbol='M')\n")
        runpy.run_path(str(file))
    assert find_loss("M").function() == 2
    assert list(LOSSES) == [*OURS, "mine"]


@pytest.mark.parametrize("function", [lambda: None, partial(squared, power=3.0), "squared", None])
def test_a_loss_needs_a_name(function: Any) -> None:
    with pytest.raises(TypeError, match="expected a function with a name"):
        register_loss(function)


@pytest.mark.parametrize("colour", ["red", "#12345", "#12345g", ""])
def test_a_colour_is_of_six_digits(colour: str) -> None:
    with pytest.raises(ValueError, match=r"squared.*#rrggbb"):
        register_loss(squared, colour=colour)


@pytest.mark.parametrize("options", [("heat",), "temperature"])
def test_options_are_arguments_of_the_function(options: Any) -> None:
    def fixed(input: Tensor, target: Tensor, features: Any, *, reduction: str) -> None: ...

    with pytest.raises(ValueError, match=r"fixed.*keyword arguments"):
        register_loss(fixed, options=options)
