"""Launches that are recorded and played again: the same results, wherever the arrays are."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import setwise as sw
from fused_cases import ELEMENTS, LOSSES
from setwise.kernels.triton import launch, tapes
from setwise.kernels.triton.launch import Launcher

GRID = (3, 2, 1)


def known() -> list[Any]:
    """What is known of each kind of calls: a tape, or a word."""
    return [tape if isinstance(tape, str) else "tape" for tape in tapes._tapes.values()]


def loss_of(seed: int, loss: str, features: sw.Features, **options: Any) -> tuple[Tensor, Tensor]:
    """Value and gradient."""
    function, given = LOSSES[loss]
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(2, 9, features.width, generator=generator, requires_grad=True)
    x = features.random_targets((2, 66), generator)
    value = function(z, x, features, impl="triton", **given, **options)
    return value.detach(), torch.autograd.grad(value.sum(), z)[0]


@pytest.mark.slow  # some seconds; without the interpreter tapes are played below
@pytest.mark.parametrize(
    ("element", "loss", "precision"),
    [
        ("boxes", "SH", "medium"),
        ("boxes", "H1H in both directions", "highest"),
        ("points", "SH at a temperature on the device", "medium"),
        ("points", "A1H in both directions", "highest"),
    ],
)
def test_the_same_bits(element: str, loss: str, precision: str) -> None:
    """Of a call that is played as of one that is computed; with masks, one for both sides, too."""
    features, valid = ELEMENTS[element], torch.ones(2, 66, dtype=torch.bool)
    valid[0, 3:] = False
    masks = {"target_valid": valid, "input_valid": valid[:, :9], "reduction": "none"}
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for options in ({}, masks):
            tapes.forget()
            first = loss_of(0, loss, features, **options)
            loss_of(1, loss, features, **options)
            assert known() == ["tape"]
            played = loss_of(0, loss, features, **options)
            assert torch.equal(played[0], first[0])
            assert torch.equal(played[1], first[1])
    finally:
        torch.set_float32_matmul_precision(before)


class Device:
    """Stands for one that is handed addresses, and for the kernel that it runs."""

    function, packed_metadata = "f", "m"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[tuple[Any, ...]] = []
        monkeypatch.setattr(launch, "INTERPRETED", False)
        monkeypatch.setattr(launch, "DIRECT", True)
        # Tensors on the CPU say that they are on device -1; take that to be the current one.
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 77, raising=False)
        self.launcher = Launcher(self, {"F": 5}, warps=4, stages=2)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return lambda *args, **options: self

    def run(self, *args: Any) -> None:
        self.started.append(args)

    def call(self, given: list[Tensor], more: Callable[..., object] = lambda between: None) -> Any:
        """One launch, of what is given, a result, and two arrays in between."""

        def compute() -> tuple[Tensor | None, ...]:
            result, between = torch.empty(2, 3), torch.empty(7)
            other = torch.empty(4, dtype=torch.int64)
            arrays = (*given, result, between, other, given[0])
            self.launcher(GRID, arrays, (2, 0.5))
            more(between)
            return None, result

        return tapes.played(("kind",), given, compute)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def test_arrays_are_where_they_are_now(device: Device) -> None:
    for _ in range(5):
        given = [torch.zeros(8), torch.zeros(8)]
        nothing, result = device.call(given)
        assert nothing is None
        assert result.shape == (2, 3)
        if not device.started:
            continue  # Triton itself had to start it
        *before, x, y, z, between, other, again, two, half, five = device.started[-1]
        assert before == [*GRID, 77, "f", "m", None, None, None]
        assert (two, half, five) == (2, 0.5, 5)
        assert [x, y, z] == [given[0].data_ptr(), given[1].data_ptr(), result.data_ptr()]
        assert again == x
        assert between % 16 == 0
        assert abs(other - between) >= 28
    assert known() == ["tape"]
    assert len(device.started) == 4


def test_only_what_comes_again_is_recorded(device: Device) -> None:
    device.call([torch.zeros(8), torch.zeros(8)])
    assert known() == ["once"]
    # Kernels are compiled for an alignment.
    device.call([torch.zeros(8), torch.zeros(9)[1:]])
    assert known() == ["once", "once"]


@pytest.mark.parametrize("more", [Tensor.sum, torch.ones_like, lambda a: a[:2], torch.Tensor.zero_])
def test_what_the_device_does_beside_is_not_left_out(
    more: Callable[..., object], device: Device
) -> None:
    for _ in range(4):
        device.call([torch.zeros(8), torch.zeros(8)], more)
    assert known() == ["never"]


def test_one_array_given_twice_is_not_recorded_but_may_be_played(device: Device) -> None:
    """Which of the two a launch takes, cannot be told."""
    one = torch.zeros(8)
    for _ in range(3):
        device.call([one, one])
    assert known() == ["once"]
    for _ in range(2):
        device.call([torch.zeros(8), torch.zeros(8)])
    assert known() == ["tape"]
    device.call([one, one])
    assert device.started[-1][9:11] == (one.data_ptr(), one.data_ptr())


def test_another_device_than_the_current_one(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        device.call([torch.zeros(8), torch.zeros(8)])
    entered: list[int] = []

    class Entered(SimpleNamespace):
        def __enter__(self) -> None:
            monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1)

        def __exit__(self, *error: object) -> None:
            entered.append(1)

    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device", lambda index: Entered())
    device.call([torch.zeros(8), torch.zeros(8)])
    assert entered


def test_kept_are_few_and_no_memory(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapes, "MOST_TAPES", 3)
    for kind in range(6):
        tapes.played((kind,), [torch.zeros(2)], lambda: (None,))
    assert len(known()) == 3
    tapes.forget()
    for _ in range(3):
        device.call([torch.zeros(8), torch.zeros(8)])
    (tape,) = tapes._tapes.values()
    assert isinstance(tape, tapes._Tape)
    assert not any(step.launched.tensors for step in tape.steps)
    monkeypatch.setattr(tapes, "MOST_BYTES", 16)
    tapes.forget()
    for _ in range(3):
        device.call([torch.zeros(8), torch.zeros(8)])
    assert known() == ["never"]
