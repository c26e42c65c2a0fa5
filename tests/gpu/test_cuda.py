"""The library on a CUDA device, with the Triton kernels compiled: `python -m pytest tests/gpu`.

Nothing here needs more than PyTorch, Triton and pytest, so that a bare machine can run it (with
`--noconftest`, if hypothesis is missing). Most of the time goes into compiling kernels, each for a
shape: the tests share theirs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
import torch
from torch import Tensor

import agreement
import setwise as sw
from cuda_losses import loss_and_both_gradients

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # torch.compile and the search for synchronisations warn of themselves.
    pytest.mark.filterwarnings("ignore"),
]

MIXED = sw.Features(sw.Bernoulli(3), sw.Categorical(4), sw.Gaussian(2, scale=0.5))
LOSSES: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "ordered": (sw.ordered_cross_entropy, {}),
    "set": (sw.set_cross_entropy, {}),
    "set, warm": (sw.set_cross_entropy, {"temperature": 0.5}),
    "average": (sw.set_average, {}),
    "average, both ways": (sw.set_average, {"directed": False}),
    "hausdorff": (sw.hausdorff, {}),
    "hausdorff, both ways": (sw.hausdorff, {"directed": False}),
}
every_loss = pytest.mark.parametrize(("loss", "options"), LOSSES.values(), ids=LOSSES)


@pytest.fixture
def precision() -> Iterator[Callable[[str], None]]:
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


def draw(
    B: int, M: int, N: int, F: int, features: sw.Features | None = None, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Logits, which want a gradient, and targets."""
    generator = torch.Generator().manual_seed(seed)
    features = features or sw.Features(sw.Bernoulli(F))
    z = 2 * torch.randn(B, N, features.width, generator=generator)
    return z.cuda().requires_grad_(), features.random_targets((B, M), generator).cuda()


def value_and_gradient(
    loss: Callable[..., Tensor], z: Tensor, *rest: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    value = loss(z, *rest, **options)
    (grad,) = torch.autograd.grad(value, z)
    return value.detach(), grad


@pytest.fixture(scope="module")
def verdicts() -> list[agreement.Verdict]:
    """Compiled by as many processes as there are cores, or a few minutes would not do."""
    workers = min(16, os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        judged = pool.map(agreement.judge, agreement.groups())
        return [verdict for group in judged for verdict in group]


class TestAgreement:
    @pytest.mark.parametrize("dtype", agreement.TYPES, ids=str)
    def test_errors_are_those_of_the_dense_computation(
        self, dtype: torch.dtype, verdicts: list[agreement.Verdict]
    ) -> None:
        ours = [verdict for verdict in verdicts if verdict.case.dtype == dtype]
        for what in agreement.RESULTS:
            worst = max((v for v in ours if v.what == what), key=lambda v: v.error / v.allowed)
            print(f"{what}: at worst {worst.error / worst.allowed:.2f} of what is allowed, {worst}")
        assert len({verdict.case for verdict in ours}) == 6 * len(agreement.WIDTHS)
        failed = [verdict for verdict in ours if not verdict.passed]
        assert not failed, "\n".join(map(str, failed))

    @pytest.mark.parametrize("F", [16, 100, 256, 301])
    @pytest.mark.parametrize("kind", ["high", "medium"])
    def test_lower_precisions(self, F: int, kind: str, precision: Any) -> None:
        """Large sets only: both may err as the dense computation does in TF32, no more."""
        z, x = draw(2, 300, 333, F)
        exact = value_and_gradient(_dense, z.detach().double().requires_grad_(), x.double())
        precision(kind)
        usual = value_and_gradient(_dense, z, x)
        ours = value_and_gradient(sw.set_cross_entropy, z, x, impl="triton")
        for got, plain, right in zip(ours, usual, exact, strict=True):
            largest = right.abs().max()
            error, allowed = ((t.double() - right).abs().max() / largest for t in (got, plain))
            assert error <= 2 * allowed + 2e-3

    def test_more_sets_than_a_grid_has_rows(self) -> None:
        """CUDA ends the second and third dimension of a grid at 65535."""
        z, x = draw(70_000, 3, 2, 5)
        for features in (None, sw.Features(sw.Gaussian(5)), sw.Features(sw.Bernoulli(5, 0.5))):
            ours, usual = (
                value_and_gradient(sw.set_cross_entropy, z, x, features, reduction="sum", impl=impl)
                for impl in ("triton", "reference")
            )
            torch.testing.assert_close(ours, usual, rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("size", [20, 300])
    @pytest.mark.parametrize("features", [None, MIXED], ids=["bernoulli", "mixed"])
    @every_loss
    def test_cuda_equals_the_cpu(
        self, loss: Any, options: dict[str, Any], features: sw.Features | None, size: int
    ) -> None:
        z, x = draw(3, size, size, 9, features)
        masks = {"input_valid": torch.arange(size).cuda() % 3 > 0, "weight": x[..., 0].abs() + 0.5}
        masks["input_valid"] = masks["input_valid"].expand(3, size)
        masks["target_valid"] = masks["input_valid"]
        ours = value_and_gradient(loss, z, x, features, **options, **masks)
        on_cpu = {name: mask.cpu() for name, mask in masks.items()}
        masks = {name: t.double() if name == "weight" else t for name, t in on_cpu.items()}
        leaf = z.detach().cpu().double().requires_grad_()
        exact = value_and_gradient(loss, leaf, x.cpu().double(), features, **options, **masks)
        for got, right in zip(ours, exact, strict=True):
            torch.testing.assert_close(got.cpu().double(), right, rtol=1e-4, atol=1e-5)

    def test_assignment_equals_the_cpu(self) -> None:
        z, x = draw(4, 20, 30, 9, MIXED)
        lengths = torch.tensor([20, 3, 0, 11])
        results = []
        for device in ("cuda", "cpu"):
            leaf = z.detach().to(device).requires_grad_()
            loss, matching = sw.assignment_cross_entropy(
                leaf,
                x.to(device),
                MIXED,
                target_valid=lengths.to(device),
                return_matching=True,
            )
            (grad,) = torch.autograd.grad(loss, leaf)
            results.append((matching.cpu(), loss.detach().cpu(), grad.cpu()))
        assert torch.equal(results[0][0], results[1][0])
        torch.testing.assert_close(results[0][1:], results[1][1:], rtol=1e-4, atol=1e-5)


def _dense(z: Tensor, x: Tensor) -> Tensor:
    return agreement.dense(z, x, None, torch.ones_like(x[..., 0]))[0].mean()


REPEATED = [(64, 9, 9, 15), (3, 300, 300, 9), (1, 700, 700, 3), (1, 513, 513, 328)]


@pytest.mark.parametrize("shape", REPEATED, ids=str)
@every_loss
def test_the_same_call_gives_the_same_bits(
    loss: Any, options: dict[str, Any], shape: tuple[int, int, int, int]
) -> None:
    """Targets that share their nearest output add to the same gradient; in a fixed order."""
    z, x = draw(*shape)
    first = value_and_gradient(loss, z, x, **options)
    for _ in range(20):
        again = value_and_gradient(loss, z, x, **options)
        assert all(torch.equal(a, b) for a, b in zip(again, first, strict=True))


@pytest.mark.parametrize("loss", [sw.set_average, sw.hausdorff])
def test_the_same_bits_when_compiled(loss: Any) -> None:
    """The compiler would add with atomics, in any order, if it saw how outputs are picked."""
    z, x = draw(64, 40, 12, 15)
    compiled = torch.compile(loss, fullgraph=True)
    runs = [value_and_gradient(compiled, z, x) for _ in range(20)]
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", REPEATED[::3], ids=str)
def test_the_same_bits_in_half_precision(shape: Any, dtype: torch.dtype) -> None:
    z, x = draw(*shape)
    z = z.detach().to(dtype).requires_grad_()
    runs = [value_and_gradient(sw.set_cross_entropy, z, x.to(dtype)) for _ in range(20)]
    assert all(torch.equal(a, b) for run in runs for a, b in zip(run, runs[0], strict=True))


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("F", [3, 40, 100, 256, 301])
@pytest.mark.parametrize(
    ("kind", "dtype", "allowed"),
    [
        ("highest", torch.float32, 1e-5),
        ("medium", torch.float32, 2e-3),
        ("highest", torch.bfloat16, 1e-2),
        ("highest", torch.float16, 2e-3),
    ],
)
def test_gradients_left_to_the_backward_pass(
    kind: str,
    dtype: torch.dtype,
    allowed: float,
    F: int,
    reduction: Any,
    precision: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As those of large sets are, by kernels of their own: the same, but for rounding."""
    precision(kind)
    z, x = (t.detach().to(dtype).requires_grad_() for t in draw(2, 300, 333, F))
    weight = torch.rand(2, 300, device="cuda")
    scale = torch.tensor([0.5, 3.0], device="cuda") if reduction == "none" else None

    def gradient() -> Tensor:
        loss = sw.set_cross_entropy(z, x.detach(), weight=weight, reduction=reduction)
        return torch.autograd.grad(loss, z, scale)[0].float()

    early = gradient()
    monkeypatch.setattr("setwise.kernels.bernoulli.LIGHT_PRODUCTS", 0)
    late = gradient()
    assert (late - early).abs().max() <= allowed * early.abs().max()
    assert torch.equal(late, gradient())


def test_the_host_is_measured_part_by_part() -> None:
    from setwise.bench.host import host_us

    parts = host_us()
    assert all(0 < times["median"] <= times["p90"] for times in parts.values())
    assert parts["step"]["median"] > parts["function"]["median"]


@pytest.mark.parametrize("temperature", [1.0, 0.5], ids=["fused", "general"])
def test_gradients_to_float32_targets_of_256_features_in_tf32(
    temperature: float, precision: Callable[[str], None]
) -> None:
    """They once asked for more shared memory than an H200 has."""
    precision("medium")
    z, x = draw(1, 300, 300, 256)
    ours = loss_and_both_gradients(z, x.requires_grad_(), temperature=temperature)
    leaves = [t.detach().double().requires_grad_() for t in (z, x)]
    exact = loss_and_both_gradients(*leaves, temperature=temperature)
    for got, right in zip(ours, exact, strict=True):
        assert (got.double() - right).abs().max() <= 2e-2 * right.abs().max()


@pytest.mark.parametrize("F", [40, 100, 256, 301])
def test_logits_beyond_float16(F: int, precision: Callable[[str], None]) -> None:
    """Of features that cannot be there, and are not, at "medium", where float16 is multiplied.

    They count as its largest number, which shows in the gradient to targets.
    """
    precision("medium")
    z, x = draw(2, 300, 333, F)
    with torch.no_grad():
        x = x.round()
        x[..., 0] = 0
        z[:, ::2, 0] = -torch.finfo(torch.float32).max
    ours = loss_and_both_gradients(z, x.requires_grad_())
    held = z.detach().clamp(min=-65504)
    exact = loss_and_both_gradients(*(t.detach().double().requires_grad_() for t in (held, x)))
    for got, right in zip(ours, exact, strict=True):
        assert (got.double() - right).abs().max() <= 5e-3 * right.abs().max()


class TestPyTorch:
    @pytest.mark.parametrize("name", ["ordered", "set", "average, both ways", "hausdorff"])
    def test_compiles_in_one_graph(self, name: str) -> None:
        loss, options = LOSSES[name]
        z, x = draw(3, 300, 300, 9, MIXED)
        lengths = torch.tensor([300, 1, 55]).cuda()
        options = {**options, "input_valid": lengths, "target_valid": lengths}
        compiled = torch.compile(loss, fullgraph=True)
        ours = value_and_gradient(compiled, z, x, MIXED, **options)
        eager = value_and_gradient(loss, z, x, MIXED, **options)
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)

    def test_compiles_for_any_layout(self) -> None:
        """What the operators promise of strides, the generated code asserts."""
        z, x = draw(3, 300, 300, 9)
        leaf = z.detach().mT.contiguous().requires_grad_()

        def loss(columns: Tensor, x: Tensor) -> Tensor:
            return sw.set_cross_entropy(columns.mT, x)

        ours = value_and_gradient(torch.compile(loss, fullgraph=True), leaf, x)
        torch.testing.assert_close(ours, value_and_gradient(loss, leaf, x), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("shape", REPEATED, ids=str)
    def test_cuda_graphs(self, shape: Any) -> None:
        """Captured once, replayed on other numbers in the same memory."""
        z, x = draw(*shape)
        other, _ = draw(*shape, seed=1)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                value_and_gradient(sw.set_cross_entropy, z, x)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = value_and_gradient(sw.set_cross_entropy, z, x)
        with torch.no_grad():
            z.copy_(other)
        graph.replay()
        expected = value_and_gradient(sw.set_cross_entropy, other, x)
        assert all(torch.equal(a, b) for a, b in zip(captured, expected, strict=True))

    @pytest.mark.parametrize("features", [None, MIXED], ids=["bernoulli", "mixed"])
    @every_loss
    def test_autocast_changes_nothing(
        self, loss: Any, options: dict[str, Any], features: sw.Features | None
    ) -> None:
        z, x = draw(3, 300, 300, 9, features)
        expected = value_and_gradient(loss, z, x, features, **options)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            value = loss(z, x, features, **options)
        (grad,) = torch.autograd.grad(value, z)
        assert value.dtype == torch.float32
        assert torch.equal(value, expected[0])
        assert torch.equal(grad, expected[1])


@pytest.fixture
def no_synchronisation() -> Iterator[Callable[[], None]]:
    """Call it, and from then on waiting for the device is an error."""
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("valid", ["all", "masks", "lengths"])
@pytest.mark.parametrize("features", [None, MIXED], ids=["bernoulli", "mixed"])
@pytest.mark.parametrize("size", [20, 300])
@every_loss
def test_the_host_never_waits(
    loss: Any,
    options: dict[str, Any],
    size: int,
    features: sw.Features | None,
    valid: str,
    no_synchronisation: Callable[[], None],
) -> None:
    z, x = draw(3, size, size, 9, features)
    lengths = torch.tensor([size, 7, 0]).cuda()
    given = lengths if valid == "lengths" else torch.arange(size).cuda() < lengths.unsqueeze(1)
    if valid != "all":
        options = {**options, "input_valid": given, "target_valid": given}
    no_synchronisation()
    value_and_gradient(loss, z, x, features, **options)


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [(torch.float32, "medium"), (torch.float32, "highest"), (torch.bfloat16, "highest")],
    ids=str,
)
def test_memory_is_linear(dtype: torch.dtype, kind: str, precision: Callable[[str], None]) -> None:
    """The scores alone would take 4 GiB."""
    precision(kind)
    z = torch.randn(1, 32768, 256, device="cuda", dtype=dtype, requires_grad=True)
    x = torch.rand(1, 32768, 256, device="cuda").to(dtype)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    value_and_gradient(sw.set_cross_entropy, z, x)
    used = (torch.cuda.max_memory_allocated() - before) / 1e6
    print(f"{used:.0f} MB above the inputs")
    assert used < 200
