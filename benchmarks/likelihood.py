"""Likelihoods and transport on a GPU, forward and backward, beside set cross entropy and peers.

    python benchmarks/likelihood.py

Peers are measured where they are installed: geomloss (tensorized) and flash-sinkhorn, on points, as
they know no other cost; and Bethe's messages as PyTorch code, compiled. Times are medians in
milliseconds, each with a wait for the device.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import setwise as sw
from setwise.kernels import bethe
from setwise.kernels.triton import bethe as fused

ROUNDS = 21
REPEATS = 40


def median(step: Callable[[], object]) -> float:
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return sorted(times)[REPEATS // 2]


def step_of(loss: Callable[..., Tensor], *sets: Tensor, **options: Any) -> Callable[[], object]:
    """Forward and backward, to the first of the sets."""
    return lambda: torch.autograd.grad(loss(*sets, **options).mean(), sets[0])


def show(name: str, step: Callable[[], object]) -> None:
    print(f"{name:56s} {median(step):9.3f}", flush=True)


def bernoulli(B: int, N: int, F: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator("cuda").manual_seed(0)
    logits = torch.randn(B, N, F, device="cuda", generator=generator).requires_grad_()
    return logits, torch.rand(B, N, F, device="cuda", generator=generator).round()


def losses() -> None:
    small, large = bernoulli(1000, 9, 15), bernoulli(64, 300, 92)
    show("set cross entropy, 1000 x 9 x 15", step_of(sw.set_cross_entropy, *small))
    show("exact likelihood", step_of(sw.set_likelihood, *small, method="exact"))
    presence = torch.zeros(1000, 9, device="cuda")
    options: dict[str, Any] = {"method": "exact", "presence": presence}
    show("exact likelihood with presence", step_of(sw.set_likelihood, *small, **options))
    show("set cross entropy, 64 x 300 x 92", step_of(sw.set_cross_entropy, *large))
    show("Bethe's likelihood", step_of(sw.set_likelihood, *large, method="bethe"))


def messages() -> None:
    """The same number of rounds for all sets, without looks at whether they have settled."""
    logits, target = bernoulli(64, 300, 92)
    bias = torch.nn.functional.softplus(logits.detach()).sum(-1).unsqueeze(1)
    scores = target @ logits.detach().mT - bias
    every = torch.ones(64, 300, dtype=torch.bool, device="cuda")
    graph = bethe.graph(scores, torch.zeros(64, 300, device="cuda"), None, every, every)
    compiled = torch.compile(lambda answers: bethe._answer(graph, bethe._ask(graph, answers)))

    def rounds() -> None:
        answers = torch.zeros_like(scores)
        for _ in range(ROUNDS):
            answers = compiled(answers)

    show(f"Bethe's messages, {ROUNDS} rounds, compiled PyTorch", rounds)
    never = patch.object(fused, "tolerance", lambda dtype: -1.0)
    with patch.object(fused, "MOST_ROUNDS", ROUNDS), never:
        show(f"Bethe's messages, {ROUNDS} rounds", lambda: fused.bethe(scores, None, None, None))


def points() -> None:
    y = torch.randn(64, 300, 92, device="cuda").requires_grad_()
    x = torch.randn(64, 300, 92, device="cuda")
    for t in (1.0, 10.0):
        options: dict[str, Any] = {"features": sw.Features(sw.Gaussian(92)), "temperature": t}
        show(f"transport of points, t = {t}", step_of(sw.transport_cross_entropy, y, x, **options))
        for peer, own in (
            ("geomloss", {"backend": "tensorized"}),
            ("flash_sinkhorn", {"half_cost": True}),
        ):
            if find_spec(peer) is not None:
                kind = import_module(peer).SamplesLoss
                show(f"{peer}, t = {t}", step_of(kind(blur=t**0.5, debias=False, **own), y, x))


if __name__ == "__main__":
    losses()
    points()
    messages()
