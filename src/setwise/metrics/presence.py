"""Sets whose outputs say by a logit whether they exist: which do, and how many."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from setwise.arguments import check_number


def present(presence: Tensor, threshold: float = 0.5) -> Tensor:
    """Which outputs exist: those whose probability, by its logit, is above the threshold.

    ``presence`` is [*, N], and so is the result, a mask for `cardinality_error` or any other metric
    and loss.

    >>> import torch
    >>> present(torch.tensor([[2.0, -1.0, 0.3]]))
    tensor([[ True, False,  True]])
    """
    _check_logits(presence)
    threshold = check_number("threshold", threshold, 0.0, 1.0)
    # Compared as logits: probabilities near 1 are rounded to 1.
    limit = math.inf if threshold == 1 else -math.inf if threshold == 0 else _logit(threshold)
    return presence.detach() > limit


def expected_size(presence: Tensor, input_valid: Tensor | None = None) -> Tensor:
    """The expected number of elements [*] by the logits [*, N] of their existence.

    ``input_valid`` [*, N] is True at the outputs that take part.

    >>> import torch
    >>> expected_size(torch.tensor([[0.0, 0.0, 30.0]]))
    tensor([2.])
    """
    _check_logits(presence)
    chances = presence.detach().sigmoid()
    if input_valid is not None:
        if not isinstance(input_valid, Tensor) or input_valid.dtype != torch.bool:
            raise TypeError(f"input_valid: expected a boolean tensor, got {input_valid!r}")
        if input_valid.shape != presence.shape:
            raise ValueError(
                f"input_valid: expected the shape of presence, {tuple(presence.shape)}, got "
                f"{tuple(input_valid.shape)}"
            )
        chances = chances.masked_fill(~input_valid, 0.0)
    return chances.sum(dim=-1)


def _logit(probability: float) -> float:
    return math.log(probability) - math.log1p(-probability)


def _check_logits(presence: Tensor) -> None:
    if not isinstance(presence, Tensor) or not presence.is_floating_point():
        given = presence.dtype if isinstance(presence, Tensor) else type(presence).__name__
        raise TypeError(f"presence: expected a floating-point tensor of logits, got {given}")
    if presence.dim() < 1:
        raise ValueError("presence: expected shape [*, outputs], got a single number")
