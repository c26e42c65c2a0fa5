"""Set Cross Entropy, SH: every target should be produced by some output, softly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from setwise.arguments import (
    Reduction,
    Sets,
    check_call,
    check_choice,
    check_flag,
    is_dtensor,
    require_dense,
)
from setwise.features import Features
from setwise.kernels.dispatch import IMPLS, Impl
from setwise.losses.costs import (
    bernoulli_set_cross_entropies,
    plain_bernoulli_is_fused,
    set_cross_entropies,
)
from setwise.losses.fused import row_loss
from setwise.losses.presence import Presence, read_presence

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

# Temperatures that are allowed, the least and the greatest.
RANGE = 1e-6, 1e6


def set_cross_entropy(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    temperature: float | Tensor = 1.0,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    impl: Impl = "auto",
    skip_negligible: bool = True,
    group: ProcessGroup | None = None,
) -> Tensor:
    r"""Set Cross Entropy (Asai, 2018), the loss that does not care for the order of a set.

    .. math:: SH(X, Y) = -\sum_i w_i\, t \,\mathrm{logsumexp}_j \left( -H(x_i, y_j) / t \right)

    Equivalent dense code, for Bernoulli features and ``t = 1``::

        scores = target @ input.mT - softplus(input).sum(-1).unsqueeze(-2)   # [*, M, N]
        loss = -scores.logsumexp(-1).sum(-1).mean()

    Args:
        input: logits [*, N, F] (means, for Gaussian features). Probabilities go through
            :meth:`Features.from_probs` first.
        target: probabilities [*, M, F]; N and M may differ.
        features: what an element is made of; by default F Bernoulli features.
        temperature: ``t``, from 1e-6 to 1e6. 1 is the paper's loss; towards 0 it becomes M
            times `set_average`; above 1 all outputs learn from all targets, which helps at the
            start of training. A tensor of one such number, on the device of the input, may change
            between replays of a compiled or recorded step; on a GPU it is trusted to be in range.
        presence: logits [*, N] of the outputs' existence, as a network may say them beside each
            element. The loss is then bounded below, as without::

                SH(X, Y) = -sum_i w_i t logsumexp_j((log c_j - H(x_i, y_j)) / t) - log p(M)

            where ``c_j`` is the probability that output j exists, and ``p(M)`` that M of them do.
            To choose an output costs ``-log c_j``, so outputs that are needed come to exist, and
            the others not, for there are to be no more than M. ``p(M)`` takes memory for some
            N x N numbers, whatever the engine.
        presence_weight: multiplies what presence costs, ``-log c_j`` and ``-log p(M)``.
        input_valid: which outputs are real: booleans [*, N], or lengths [*] of integers.
        target_valid: which targets are real: booleans [*, M], or lengths [*].
        weight: of each target, [*, M].
        reduction: over the batch: ``"mean"``, ``"sum"`` or ``"none"`` (shape [*]).
        impl: the engine: ``"auto"``, ``"reference"`` (dense), ``"chunked"`` (linear memory) or
            ``"triton"`` (CUDA). ``"auto"`` takes Triton on CUDA and else what suits the size.
        skip_negligible: whether pairs may be left out whose softmax weight is below ``2^-40 / N``,
            where that is faster. In large sets on the Triton engine, of more than four features,
            the gradient may leave out blocks of such pairs; the loss is the same. Clouds of points,
            of up to 8 Gaussian features or angles and no others, are searched: by k-d trees on the
            CPU, if the engine is ``"auto"`` and there are at least 1000; in sorted blocks on the
            Triton engine, from ``2^34`` pairs on. These may leave such pairs (in float64 below
            ``2^-64 / N``) out of loss and gradient, and a sum misses less than ``2^-40``
            (``2^-64``) of itself. The gradient to an output changes by at most ``sum_i |g_i| 2^-40
            / N`` times the size of a feature, where ``g_i`` is the incoming gradient of target i;
            that of an output with no larger weight may become exactly 0. ``False`` computes all
            pairs, as other calls do.
        group: processes over which the elements of each set are spread, as
            ``torch.distributed.group.WORLD``. Every process calls with its own outputs and targets
            of the same sets, as many as it has, and gets the loss of the whole sets; gradients are
            those of its own elements, with nothing to be scaled. Inputs and targets that are
            DTensors, ``Shard(-2)`` over a mesh of one dimension, need no group.

    A set without targets costs 0; one with targets and no output at all costs infinity, for
    nothing can produce them. With ``presence`` a set without targets costs ``-log p(0)``, and one
    with more targets than outputs infinity. Half-precision inputs are computed, and returned, in
    float32.

    The paper's example, in natural logarithms:

    >>> import torch, setwise as sw
    >>> bernoulli = sw.Features(sw.Bernoulli(2))
    >>> X = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    >>> Y1 = bernoulli.from_probs(torch.tensor([[0.1, 0.5], [0.1, 0.5]]))
    >>> Y2 = bernoulli.from_probs(torch.tensor([[0.1, 0.5], [0.9, 0.5]]))
    >>> round(sw.set_cross_entropy(Y1, X).item(), 4)  # -ln 0.81
    0.2107
    >>> round(sw.set_cross_entropy(Y2, X).item(), 4)  # -ln 0.25
    1.3863
    """
    given = (input, target, features, input_valid, target_valid, weight, reduction)
    if group is not None or is_dtensor(input):
        from setwise.losses import sharded  # not every PyTorch has torch.distributed

        with sharded.refusals_told(group, input):
            temperature = _check_options(temperature, impl, skip_negligible)
        shards = sharded.read_shards(
            *(group, impl, presence, presence_weight, *given),
            loss="set_cross_entropy",
            temperature=temperature,
        )
        return sharded.set_cross_entropy(shards, temperature, impl, reduction, skip_negligible)
    temperature = _check_options(temperature, impl, skip_negligible)
    sets = check_call(*given, widen=False)
    exists = read_presence(presence, presence_weight, input, sets)
    if plain_bernoulli_is_fused(sets, temperature, exists, impl):
        return bernoulli_set_cross_entropies(sets, reduction, skip_negligible)
    sets = sets.widened()

    def general(sets: Sets, exists: Presence | None, reduction: str) -> Tensor:
        return set_cross_entropies(sets, temperature, exists, impl, reduction, skip_negligible)

    return row_loss(
        sets,
        exists,
        "soft",
        general,
        impl,
        reduction,
        temperature=temperature,
        skip_negligible=skip_negligible,
    )


def _check_options(
    temperature: float | Tensor, impl: object, skip_negligible: object
) -> float | Tensor:
    temperature = _check_temperature(temperature)
    check_choice("impl", impl, IMPLS)
    check_flag("skip_negligible", skip_negligible)
    return temperature


def _check_temperature(temperature: float | Tensor) -> float | Tensor:
    if isinstance(temperature, Tensor):
        require_dense("temperature", temperature)
        if temperature.dim() or not temperature.is_floating_point():
            raise ValueError(
                f"temperature: a tensor must hold one floating-point number and no dimension, got "
                f"shape {tuple(temperature.shape)} of {temperature.dtype}"
            )
        if temperature.device.type == "cpu" and not torch.compiler.is_compiling():
            _require_in_range(
                temperature.item(), *(_rounded(limit, temperature) for limit in RANGE)
            )
        return temperature
    # As a tuple: torch.compile of PyTorch 2.8 knows no union.
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)):
        raise TypeError(f"temperature: expected a number, got {type(temperature).__name__}")
    _require_in_range(temperature, *RANGE)
    return float(temperature)


def _require_in_range(temperature: float, low: float, high: float) -> None:
    if not low <= temperature <= high:
        raise ValueError(
            f"temperature: must lie between 1e-6 and 1e6, got {temperature!r}; its limit at 0 is M "
            f"times set_average"
        )


def _rounded(limit: float, like: Tensor) -> float:
    """As a tensor of that type holds it, in float32 a little less; float16 has no 1e6."""
    return min(torch.tensor(limit, dtype=like.dtype).item(), torch.finfo(like.dtype).max)
