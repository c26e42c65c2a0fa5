"""Rounds of messages until nothing changes, and gradients through the point where they end.

The gradient of a value that is stationary in the messages needs the latter not: it is taken with
the messages held. Its second derivative does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# Looking whether all sets have settled means waiting for the device: not after every round.
ROUNDS_BETWEEN_LOOKS = 5
Judge = Callable[[Tensor], tuple[Tensor, Tensor]]


def tolerance(dtype: torch.dtype) -> float:
    """What counts as no change: of probabilities, and of values in relation to themselves."""
    return 1e-10 if dtype == torch.float64 else 1e-5


def looks(dtype: torch.dtype) -> range:
    """How often to look at most: after 100 rounds, or 300 in float64.

    Where two ways weigh nearly the same, messages creep, and the value has long been found.
    """
    return range((300 if dtype == torch.float64 else 100) // ROUNDS_BETWEEN_LOOKS)


def has_settled(value: Tensor, before: Tensor, odds: Tensor, dtype: torch.dtype) -> Tensor:
    """Which sets [B] have, by their values now and at the last look; ``odds`` as of `settle`."""
    quiet = tolerance(dtype)
    return (odds <= quiet) & ((value - before).abs() <= quiet * (1 + value.abs()))


def settle(
    rounds_of: Callable[[Tensor], tuple[Callable[[Tensor], Tensor], Judge]], start: Tensor
) -> tuple[Tensor, Tensor]:
    """The messages [B, ...] after the last round, and which sets [B] have settled.

    ``rounds_of`` gives, for sets by their numbers, one round of messages and a judge of them: the
    value [B] that they stand for, and by how much [B] their probabilities are still at odds. Both
    must be quiet: where scores are extreme, probabilities of 0 and 1 may rest for a round or two
    while messages are still on their way. Sets that have settled are left alone, for a few that
    take long should not be waited for by all.
    """
    B = len(start)
    messages, settled = start.clone(), torch.zeros(B, dtype=torch.bool, device=start.device)
    active = torch.arange(B, device=start.device)
    step, judge = rounds_of(active)
    current = start
    value, _ = judge(current)
    for _ in looks(value.dtype):
        for _ in range(ROUNDS_BETWEEN_LOOKS):
            current = step(current)
        before = value
        value, odds = judge(current)
        done = has_settled(value, before, odds, value.dtype)
        messages[active], settled[active] = current, done
        if done.any():
            active, current, value = active[~done], current[~done], value[~done]
            if len(active) == 0:
                break
            step, judge = rounds_of(active)
    return messages, settled


def pull_back(
    step: Callable[..., Tensor],
    read: Callable[..., tuple[Tensor, ...]],
    messages: Tensor,
    inputs: tuple[Tensor, ...],
    cotangents: tuple[Tensor, ...],
) -> tuple[Tensor, ...]:
    """The gradients to the inputs of what is read at the fixed point ``messages`` of the rounds.

    Both ``step`` and ``read`` take messages and inputs. How the fixed point depends on the inputs
    solves a linear equation, by rounds that are those of the messages, transposed. The gradients
    have none of their own: to ask for it raises RuntimeError.
    """
    with torch.no_grad():
        back_from_read = torch.func.vjp(read, messages, *inputs)[1]
        back_from_step = torch.func.vjp(step, messages, *inputs)[1]
        start, *direct = back_from_read(cotangents)
        asked, before = start, None
        can_look = not torch._C._are_functorch_transforms_active()
        quiet = tolerance(messages.dtype)
        for _ in looks(messages.dtype):
            for _ in range(ROUNDS_BETWEEN_LOOKS):
                through, *indirect = back_from_step(asked)
                asked = start + through
            found = torch.cat([t.flatten() for t in indirect])
            if can_look and before is not None and torch.allclose(found, before, quiet, quiet):
                break
            before = found
        gradients = [a + b for a, b in zip(direct, indirect, strict=True)]
    return tuple(Last.apply(gradient, *inputs, *cotangents) for gradient in gradients)


class Last(torch.autograd.Function):
    """A gradient, unchanged, which depends on tensors in ways that are not differentiated.

    PyTorch's ``once_differentiable`` looks at what comes back alone, and not at the inputs.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(gradient: Tensor, *depends_on: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> tuple[None, ...]:
        raise RuntimeError(
            "no further derivative: Bethe's likelihood and transport have two, and "
            "matching_marginals by method='bethe' one; method='exact' has all of them"
        )
