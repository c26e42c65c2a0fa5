"""Launches that are recorded and played again: the same results, wherever the arrays are."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

import setwise as sw
from fused_cases import ELEMENTS, LOSSES, known_tapes
from setwise.kernels.triton import launch, tapes
from setwise.kernels.triton.launch import Launcher

GRID = (3, 2, 1)


def loss_of(seed: int, loss: str, features: sw.Features, **options: Any) -> tuple[Tensor, Tensor]:
    """Value and gradient."""
    function, given = LOSSES[loss]
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(2, 9, features.width, generator=generator, requires_grad=True)
    x = features.random_targets((2, 66), generator)
    value = function(z, x, features, impl="triton", **{**given, **options})
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
            assert known_tapes() == ["tape"]
            played = loss_of(0, loss, features, **options)
            assert torch.equal(played[0], first[0])
            assert torch.equal(played[1], first[1])
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.slow
def test_whatever_decides_what_is_launched_tells_calls_apart() -> None:
    """One after the other and over again, calls that differ in one thing alone stay apart."""
    points, wider = ELEMENTS["points"], sw.Features(sw.Gaussian(3, scale=0.9))
    weight = torch.rand(2, 66, generator=torch.Generator().manual_seed(2))
    calls: list[tuple[sw.Features, dict[str, Any]]] = [
        (points, {}),
        (wider, {}),
        (points, {"temperature": 2.0}),
        (points, {"temperature": torch.tensor(0.5)}),
        (points, {"temperature": torch.tensor(2.0, dtype=torch.float64)}),
        (points, {"reduction": "none"}),
        (points, {"reduction": "sum"}),
        (points, {"weight": weight}),
        (points, {"input_valid": torch.tensor([9, 4])}),
        (points, {"target_valid": torch.tensor([66, 7])}),
    ]
    expected = []
    for features, options in calls:
        tapes.forget()
        expected.append(loss_of(0, "SH", features, **options))
    tapes.forget()
    for _ in range(3):
        found = [loss_of(0, "SH", features, **options) for features, options in calls]
    assert known_tapes() == ["tape"] * len(calls)
    for ours, alone in zip(found, expected, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(ours, alone, strict=True))


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
    assert known_tapes() == ["tape"]
    assert len(device.started) == 4


def test_only_what_comes_again_is_recorded(device: Device) -> None:
    device.call([torch.zeros(8), torch.zeros(8)])
    assert known_tapes() == ["once"]
    # Kernels are compiled for an alignment.
    device.call([torch.zeros(8), torch.zeros(9)[1:]])
    assert known_tapes() == ["once", "once"]


@pytest.mark.parametrize("more", [Tensor.sum, torch.ones_like, lambda a: a[:2], torch.Tensor.zero_])
def test_what_the_device_does_beside_is_not_left_out(
    more: Callable[..., object], device: Device
) -> None:
    for _ in range(4):
        device.call([torch.zeros(8), torch.zeros(8)], more)
    assert known_tapes() == ["never"]


def test_one_array_given_twice_is_not_recorded_but_may_be_played(device: Device) -> None:
    """Which of the two a launch takes, cannot be told."""
    one = torch.zeros(8)
    for _ in range(3):
        device.call([one, one])
    assert known_tapes() == ["once"]
    for _ in range(2):
        device.call([torch.zeros(8), torch.zeros(8)])
    assert known_tapes() == ["tape"]
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
    assert len(known_tapes()) == 3
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
    assert known_tapes() == ["never"]


@pytest.mark.slow
def test_a_recording_that_is_interrupted_leaves_nothing_behind(device: Device) -> None:
    def interrupt(between: Tensor) -> None:
        if device.started:  # not in the first call, which Triton starts
            raise KeyboardInterrupt

    given = [torch.zeros(8), torch.zeros(8)]
    device.call(given)
    with pytest.raises(KeyboardInterrupt):
        device.call(given, interrupt)
    assert launch._listener.hear is None
    assert known_tapes() == ["once"]
    device.call(given)
    assert known_tapes() == ["tape"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2**28, 64])
def test_what_is_not_recorded_is_not_kept(
    limit: int, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a call does something else, or allocates too much: memory is free when it was."""
    monkeypatch.setattr(tapes, "MOST_BYTES", limit)
    alive = []

    def more(between: Tensor) -> None:
        if limit > 64:
            between.sum()
        array = torch.empty(100)
        device.launcher(GRID, (array, array), (2, 0.5))
        gone = weakref.ref(array)
        del array
        alive.append(gone() is not None)

    for _ in range(3):
        device.call([torch.zeros(8), torch.zeros(8)], more)
    assert known_tapes() == ["never"]
    assert not any(alive)


class Slow(dict[Any, Any]):
    """Others get a turn in the midst of all that is done with it."""

    def __iter__(self) -> Iterator[Any]:
        keys = super().__iter__()
        time.sleep(1e-4)
        return keys

    def __setitem__(self, key: Any, value: Any) -> None:
        time.sleep(1e-4)
        super().__setitem__(key, value)


@pytest.mark.slow
def test_kinds_come_and_go_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tapes, "MOST_TAPES", 3)
    monkeypatch.setattr(tapes, "_tapes", Slow())

    def run(first: int) -> None:
        for kind in range(first, first + 50):
            tapes.played((kind,), [torch.zeros(2)], lambda: (None,))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(0, 200, 50)))
    assert len(known_tapes()) == 3
