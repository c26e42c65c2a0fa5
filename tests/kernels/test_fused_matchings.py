"""Likelihoods of small sets from elements to gradients by fused kernels, in the interpreter."""

from __future__ import annotations

import json
import re
import runpy
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import torch
from tools import kernel_studies
from torch import Tensor
from torch.autograd import forward_ad

pytest.importorskip("triton")

import setwise as sw
from fused_cases import ELEMENTS, known_tapes
from likelihood_cases import judge_likelihood, step
from repository import ROOT
from setwise.kernels import dispatch, fused_matchings, likelihoods
from setwise.kernels.triton import tapes

# Where a GPU is, the kernels are not made for the interpreter; tests/gpu has them compiled.
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="kernels are made for the GPU")
pytestmark = [no_gpu, pytest.mark.slow]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have calls on a CPU served as on a GPU; the methods of those that fused kernels serve."""

    def serve(module: str, scores: Tensor) -> Any:
        return dispatch.triton_module(f"triton.{module}") if scores.dtype == torch.float32 else None

    methods: list[str] = []
    honest = likelihoods.fused_likelihood

    def counted(target: Tensor, logits: Tensor, call: likelihoods.Call, again: Any) -> Tensor:
        methods.append(call.method)
        return honest(target, logits, call, again)

    monkeypatch.setattr(dispatch, "fused", serve)
    monkeypatch.setattr(likelihoods, "fused_likelihood", counted)
    tapes.forget()
    return methods


@pytest.mark.parametrize(
    ("element", "options"),
    [
        ("boxes", {}),
        ("categorical as Bernoulli", {"masked": True, "reduction": "none"}),
        ("boxes", {"masked": True, "weighted": True, "present": True, "reduction": "none"}),
        ("points", {"present": True, "reduction": "sum"}),
    ],
)
def test_exact(served: list[str], element: str, options: dict[str, Any]) -> None:
    judge_likelihood(ELEMENTS[element], 3, 4, method="exact", **options)
    assert served == ["exact"] * 6
    assert known_tapes() == ["tape"] * 2  # with a gradient and without


def test_what_is_impossible_is_infinite_and_pulls_nothing(served: list[str]) -> None:
    """And what is possible beside it pulls as always, though the mean of both is infinite.

    Where values may be looked at, a warning says which set that is, as the general way does.
    """
    features, generator = ELEMENTS["few of two kinds"], torch.Generator().manual_seed(0)
    z = torch.randn(2, 3, 4, generator=generator).requires_grad_()
    x, lengths = features.random_targets((2, 2), generator), torch.tensor([1, 3])
    found = []
    for dtype in (torch.float32, torch.float64):
        with pytest.warns(RuntimeWarning, match=r"set \[0\] has 2 targets and 1 outputs"):
            value = sw.set_likelihood(z.to(dtype), x.to(dtype), features, input_valid=lengths)
        found.append((value.double(), torch.autograd.grad(value, z)[0]))
    assert found[0][0] == torch.inf
    assert (found[0][1][0] == 0).all()
    torch.testing.assert_close(*found)
    assert served == ["exact"]


def test_targets_alone_are_masked(served: list[str]) -> None:
    """More of them than outputs, if all counted; one set has none."""
    features, generator = ELEMENTS["points"], torch.Generator().manual_seed(0)
    z = torch.randn(3, 2, features.width, generator=generator).requires_grad_()
    x, lengths = features.random_targets((3, 3), generator), torch.tensor([2, 1, 0])
    found = []
    for dtype in (torch.float32, torch.float64):
        value = sw.set_likelihood(z.to(dtype), x.to(dtype), features, target_valid=lengths)
        found.append((value.double(), torch.autograd.grad(value, z)[0]))
    torch.testing.assert_close(*found)
    assert served == ["exact"]


def test_bethe(served: list[str]) -> None:
    options = {"masked": True, "present": True, "reduction": "none", "method": "bethe"}
    features = ELEMENTS["categorical"]
    got = step(features, 2, 3, torch.float32, "cpu", options)
    right = step(features, 2, 3, torch.float64, "cpu", options)
    assert served == ["bethe"] * 2  # with a gradient and without
    step(features, 2, 3, torch.float32, "cpu", options)
    assert known_tapes() == ["never"] * 2  # for it wants zeros
    for one, other in zip(got, right, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=1e-3)


def test_batches_of_more_sets_than_one_program_adds_up(
    served: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused_matchings, "MAX_PARTS", 3)
    judge_likelihood(ELEMENTS["points"], 2, 2, method="exact", present=True)
    assert served == ["exact"] * 6


def test_second_derivatives_and_batched_gradients(served: list[str]) -> None:
    """By the general way, of the same loss."""
    features, results = ELEMENTS["boxes"], []
    for dtype in (torch.float32, torch.float64):
        generator = torch.Generator().manual_seed(1)
        z = torch.randn(2, 4, features.width, generator=generator).to(dtype).requires_grad_()
        x = features.random_targets((2, 3), generator).to(dtype)
        exists = torch.randn(2, 4, generator=generator).to(dtype).requires_grad_()
        value = sw.set_likelihood(z, x, features, presence=exists, reduction="none")
        firsts = torch.autograd.grad(value.sum(), (z, exists), create_graph=True)
        total = firsts[0].square().sum() + firsts[1].square().sum()
        seconds = torch.autograd.grad(total, (z, exists), retain_graph=True)
        (each,) = torch.autograd.grad(value, exists, torch.eye(2).to(dtype), is_grads_batched=True)
        results.append([t.detach().double() for t in (*firsts, *seconds, each)])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    assert served == ["exact"]


def test_arrays_that_are_not_plain(served: list[str]) -> None:
    """Transposed, or classes as integers; and leading dimensions."""
    features, generator = sw.Features(sw.Categorical(5)), torch.Generator().manual_seed(0)
    z = torch.randn(3, 5, 2, generator=generator).mT.requires_grad_()
    classes = torch.tensor([[1, 4], [0, 0], [2, 3]])
    options: Any = {"features": features, "method": "exact", "reduction": "none"}
    found = sw.set_likelihood(z, classes, **options)
    exact = sw.set_likelihood(z.double(), classes, **options)
    torch.testing.assert_close(found.double(), exact)
    # Kernels wrote the gradient in rows; autograd gives it to what was transposed.
    got, right = (torch.autograd.grad(t.sum(), z)[0] for t in (found, exact))
    torch.testing.assert_close(got, right)
    assert sw.set_likelihood(z[:, None], classes[:, None], **options).shape == (3, 1)
    assert served == ["exact"] * 2


def _mapped(z: Tensor, x: Tensor) -> Tensor:
    return torch.func.vmap(sw.set_likelihood)(z, x)


def _compiled(z: Tensor, x: Tensor) -> Tensor:
    """As a compiler sees it; to compile it would take longer than all else here."""
    with patch("torch.compiler.is_compiling", lambda: True):
        return sw.set_likelihood(z, x)


GENERAL: dict[str, Callable[[Tensor, Tensor], object]] = {
    "wider numbers": lambda z, x: sw.set_likelihood(z.double(), x.double()),
    "a gradient to the targets": lambda z, x: sw.set_likelihood(z, x.clone().requires_grad_()),
    "a gradient to the weight": lambda z, x: sw.set_likelihood(
        z, x, weight=torch.ones(x.shape[:2], requires_grad=True)
    ),
    "exclusivity": lambda z, x: sw.set_likelihood(z, x, exclusivity=0.5),
    "whether it has settled": lambda z, x: sw.set_likelihood(z, x, return_settled=True),
    "torch.func": _mapped,
    "a compiler": _compiled,
    "more targets than outputs": lambda z, x: sw.set_likelihood(z[:, :2], x, reduction="none"),
    "large sets": lambda z, x: sw.set_likelihood(z.repeat(1, 20, 1), x[:, :1]),
    "many features": lambda z, x: sw.set_likelihood(z.repeat(1, 1, 86), x.repeat(1, 1, 86)),
    "no sets": lambda z, x: sw.set_likelihood(z[:0], x[:0]),
}


@pytest.mark.parametrize("reason", GENERAL)
def test_calls_that_take_the_general_way(
    reason: str, served: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihoods, "bernoulli_likelihood", lambda *_: None)
    honest = dispatch.fused
    monkeypatch.setattr(
        dispatch, "fused", lambda module, t: honest(module, t) if t.numel() else None
    )
    GENERAL[reason](torch.randn(2, 4, 3), torch.rand(2, 3, 3).round())
    assert served == []


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch's own
def test_forward_derivatives_are_not_lost_in_silence(served: list[str]) -> None:
    given = {"input": torch.randn(2, 4, 3), "target": torch.rand(2, 3, 3).round()}
    given |= {"presence": torch.randn(2, 4), "weight": torch.rand(2, 3)}
    with forward_ad.dual_level():
        for changed, tensor in given.items():
            dual = {changed: forward_ad.make_dual(tensor, tensor)}
            with pytest.raises(RuntimeError, match="forward"):
                sw.set_likelihood(**(given | dual))
    assert served == []


def test_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/likelihood.py without its clock, and without a compiler; the documents read it."""
    records = runpy.run_path(str(ROOT / "benchmarks" / "likelihood.py"))["records"]
    script = records.__globals__
    small = {"puzzle": (2, 2, 3), "detr": (2, 3, 3)}
    families = {name: script["FAMILIES"][name] for name in ("Bernoulli", "Gaussian")}
    for name, instead in {
        "SHAPES": small,
        "FAMILIES": families,
        "PEERS": {"torch": ("torch", {})},  # a library that cannot do it
        "SETTLED": 200,
        "time_of": lambda step: 3.0,
        "MESSAGES": 2,
        "TURNS": 0,
    }.items():
        monkeypatch.setitem(script, name, instead)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    before = torch.get_float32_matmul_precision()
    *_, cut, record = records("cpu", "c0ffee")
    assert torch.get_float32_matmul_precision() == before
    exact = [row for row in record["rows"] if "gradient_error" in row]
    assert [row["family"] for row in exact] == list(families)
    assert all(0 <= row[f"{what}_error"] < 1e-5 for row in exact for what in ("value", "gradient"))
    text = kernel_studies.likelihood(json.loads(json.dumps(record)))
    assert f"{record['header']['hardware']}, torch" in " ".join(text.split())
    assert "| detr | likelihood, Bethe | Gaussian | 3.00 / 3.00: 1.0x | 3.00 / 3.00: 1.0x |" in text
    moved = [row for row in record["rows"] if row["part"] == "transport" and "error" not in row]
    assert [row["value_error"] < 1e-5 for row in moved] == [True, True]
    found = r"\| setwise \| 3.00 \(least 3.00\), off by \de[-+]\d+ .*\n\| torch \| AttributeError"
    assert re.search(found, text)
    assert "The run was cut short" not in text
    assert "The run was cut short" in kernel_studies.likelihood(cut)
    sent = " ".join(kernel_studies.messages(record).split())
    each = r"3.00 ms \(least 3.00\)"
    of_rivals = f"alone take {each}, 1.0 times .* same .* {each}, 1.0 times as long"
    assert re.fullmatch(rf"2 rounds of .* take {each} in one launch, .* {of_rivals}\.", sent)
    ours, *_ = (row for row in record["rows"] if row["part"] == "messages")
    assert ours["apart"] < 1e-5
    before_them = [row for row in record["rows"] if row["part"] == "losses"]
    assert "cut short" in kernel_studies.messages({"rows": before_them})


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # NumPy's, which interprets
def test_a_nan_is_seen(served: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # As on a GPU, where values are not looked at.
    monkeypatch.setattr("setwise.values.are_readable", lambda tensor: False)
    z = torch.randn(2, 3, 2)
    z[0, 1, 1] = torch.nan
    value = sw.set_likelihood(z, torch.rand(2, 2, 2).round(), reduction="none")
    assert value[0].isnan()
    assert value[1].isfinite()
    assert served == ["exact"]
