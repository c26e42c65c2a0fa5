"""The likelihood of a set: each output produces one element, and nobody knows which."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args, overload

import torch
from torch import Tensor

from setwise import values
from setwise.arguments import (
    Reduction,
    Sets,
    check_call,
    check_choice,
    check_flag,
    check_number,
    require_dense,
)
from setwise.features import Features
from setwise.kernels import likelihoods
from setwise.kernels.matchings import log_sum_of_matchings
from setwise.kernels.permanent import MOST_TARGETS
from setwise.losses.costs import finish, lacks_outputs, tell_impossible
from setwise.losses.matched import matching_costs
from setwise.losses.presence import Presence, read_presence, too_few_outputs

Method = Literal["auto", "exact", "bethe"]
METHODS: tuple[str, ...] = get_args(Method)

# Up to this many terms for each set "auto" sums all matchings.
EXACT_TERMS = 2**17


@overload
def set_likelihood(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    method: Method = "auto",
    exclusivity: float | Tensor | None = None,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    return_settled: Literal[False] = False,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor: ...


@overload
def set_likelihood(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    method: Method = "auto",
    exclusivity: float | Tensor | None = None,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    return_settled: Literal[True],
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> tuple[Tensor, Tensor]: ...


def set_likelihood(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    method: Method = "auto",
    exclusivity: float | Tensor | None = None,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    return_settled: bool = False,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor | tuple[Tensor, Tensor]:
    r"""The negative log likelihood of the targets, produced by different outputs in unknown order.

    .. math:: -\ln \sum_{\pi\ \mathrm{injective}} \prod_i e^{-w_i H(x_i, y_{\pi(i)})}

    Equivalent dense code, for two targets and Bernoulli features::

        P = (target @ input.mT - softplus(input).sum(-1).unsqueeze(-2)).exp()   # [*, 2, N]
        both = P[..., 0, :].sum(-1) * P[..., 1, :].sum(-1)   # any two outputs,
        loss = -(both - (P[..., 0, :] * P[..., 1, :]).sum(-1)).log().mean()   # but not one twice

    With ``presence``, an output exists with probability :math:`c_j = \sigma(\mathrm{presence}_j)`,
    and the likelihood is that of exactly these elements:

    .. math:: -\ln \sum_\pi \prod_i c_{\pi(i)} e^{-w_i H(x_i, y_{\pi(i)})}
        \prod_{j \notin \pi} (1 - c_j)

    Args:
        method: ``"exact"`` sums over subsets, for up to 18 targets; ``"bethe"`` takes any number of
            them, and gives an upper bound of the loss that is off by at most
            :math:`\frac{N}{2} \ln 2`, in practice far less. ``"auto"`` is exact while that takes up
            to 2^17 terms a set, which depends on the shapes alone.
        exclusivity: from 0, `set_cross_entropy`, to 1, Bethe's likelihood: how far an output that
            serves one target is lost to the others. The loss rises with it. A number, or a tensor
            of one on the device of the input, which may change between steps, but has no gradient;
            see :func:`setwise.rising_exclusivity`. The method is Bethe's then. With ``presence``
            too: an output that exists pays once for that.
        presence: logits [*, N] of the outputs' existence; without, outputs may stay unused.
        presence_weight: multiplies what presence costs.
        return_settled: whether the result is a pair ``(loss, settled)``, where ``settled`` [*] says
            whether the rounds of Bethe's method came to an end; the exact one always does.

    The other arguments are those of :func:`set_cross_entropy`. A set without targets costs 0, or
    what the absence of all outputs does; one with more targets than outputs infinity, as nothing
    can produce it, unless with an exclusivity below 1.

    >>> import torch, setwise as sw
    >>> one_of_three = sw.Features(sw.Categorical(3))
    >>> know_nothing, classes = torch.zeros(3, 3), torch.eye(3)
    >>> sw.set_likelihood(know_nothing, classes, one_of_three).exp()  # 3! of 3^3 outcomes
    tensor(4.5000)
    """
    check_flag("return_settled", return_settled)
    sets = check_call(input, target, features, input_valid, target_valid, weight, reduction)
    given = read_presence(presence, presence_weight, input, sets)
    if exclusivity is None and not return_settled:
        shortcut = _fused(sets, given, method, reduction)
        if shortcut is not None:
            return shortcut
    loss, settled = _general(sets, given, method, exclusivity, reduction)
    return (loss, settled.reshape(sets.lead)) if return_settled else loss


def _general(
    sets: Sets,
    presence: Presence | None,
    method: Method,
    exclusivity: float | Tensor | None,
    reduction: Reduction,
) -> tuple[Tensor, Tensor]:
    """The loss, and which sets have settled [B]."""
    problem = matching_problem(sets, presence, method, exclusivity)
    log_sum, settled = log_sum_of_matchings(*problem)
    per_set = -log_sum if presence is None else presence.all_absent(sets) - log_sum
    return finish(sets, per_set, reduction, _impossible(sets, problem.exclusivity)), settled


def _fused(
    sets: Sets, presence: Presence | None, method: Method, reduction: Reduction
) -> Tensor | None:
    """The loss by fused kernels, if there are any for such a call."""
    blocks, (M, N) = sets.features.kernel, (sets.target.shape[1], sets.logits.shape[1])
    chosen = _choose(method, M, N, False)
    exists = None if presence is None else presence.logits
    all_valid = sets.output_valid is None and sets.target_valid is None
    if blocks is None or (all_valid and M > N):
        return None

    def again(logits: Tensor, *others: Tensor) -> Tensor:
        given = sets._replace(logits=logits, lead=logits.shape[:1])
        existing = None if presence is None else presence._replace(logits=others[0])
        return _general(given, existing, chosen, None, reduction)[0]

    loss = None
    if likelihoods.fuses(sets.target, sets.logits, sets.weight, exists):
        call = likelihoods.Call(
            blocks,
            chosen,
            reduction,
            output_valid=sets.output_valid,
            target_valid=sets.target_valid,
            weight=sets.weight,
            presence=exists,
            presence_weight=1.0 if presence is None else presence.weight,
        )
        loss = likelihoods.fused_likelihood(sets.target, sets.logits, call, again)
        # The kernels tell such sets apart by themselves, but warn of nothing.
        if not all_valid and values.are_readable(loss):
            tell_impossible(sets, too_few_outputs(sets), reduction)
    elif all_valid and sets.weight is None and presence is None and sets.features.plain_bernoulli:
        loss = likelihoods.bernoulli_likelihood(sets.target, sets.logits, chosen, reduction)
    return loss.reshape(sets.lead) if loss is not None and reduction == "none" else loss


class Problem(NamedTuple):
    """What the sum over matchings is made of; see `setwise.kernels.matchings`."""

    scores: Tensor  # [B, M, N]
    odds: Tensor  # [B, N]
    exclusivity: Tensor | None  # [B]
    targets: Tensor  # [B, M]
    outputs: Tensor  # [B, N]
    method: str


def matching_problem(
    sets: Sets,
    presence: Presence | None,
    method: Method,
    exclusivity: float | Tensor | None = None,
) -> Problem:
    """Check the options of a call, and put its costs into a problem."""
    scores = -matching_costs(sets, None)
    odds = scores.new_zeros(sets.logits.shape[:2]) if presence is None else presence.odds()
    shared = _check_exclusivity(exclusivity, scores)
    chosen = _choose(method, sets.target.shape[1], sets.logits.shape[1], shared is not None)
    return Problem(scores, odds, shared, *sets.masks(), chosen)


def _choose(method: Method, M: int, N: int, shared: bool) -> Method:
    check_choice("method", method, METHODS)
    terms = (max(M, N) - M + 1) * M * 2 ** (M - 1)
    if method == "exact" and shared:
        raise ValueError(
            "method: 'exact' has no exclusivity; use 'auto' or 'bethe', or leave it out"
        )
    if method == "exact" and M > MOST_TARGETS:
        raise ValueError(
            f"method: 'exact' takes sets of at most {MOST_TARGETS} targets, got {M}; use 'bethe'"
        )
    if method != "auto":
        return method
    return "bethe" if shared or M > MOST_TARGETS or terms > EXACT_TERMS else "exact"


def _check_exclusivity(exclusivity: float | Tensor | None, scores: Tensor) -> Tensor | None:
    """One number for each set [B]; None if there is none."""
    if exclusivity is None:
        return None
    if not isinstance(exclusivity, Tensor):
        number = check_number("exclusivity", exclusivity, 0.0, 1.0)
        return scores.new_full(scores.shape[:1], number)
    require_dense("exclusivity", exclusivity)
    if exclusivity.dim() or not exclusivity.is_floating_point():
        raise ValueError(
            f"exclusivity: a tensor must hold one floating-point number and no dimension, got "
            f"shape {tuple(exclusivity.shape)} of {exclusivity.dtype}"
        )
    if exclusivity.device != scores.device:
        raise ValueError(f"exclusivity: on {exclusivity.device}, but input is on {scores.device}")
    if exclusivity.requires_grad:
        raise ValueError(
            "exclusivity: expected a tensor without requires_grad, for the loss has no gradient by "
            "it; use exclusivity.detach()"
        )
    if exclusivity.device.type == "cpu" and not torch.compiler.is_compiling():
        check_number("exclusivity", exclusivity.item(), 0.0, 1.0)
    return exclusivity.to(scores.dtype).expand(scores.shape[0])


def _impossible(sets: Sets, exclusivity: Tensor | None) -> Tensor | None:
    few = too_few_outputs(sets)
    if exclusivity is None:
        return few
    none = lacks_outputs(sets)
    few = few & (exclusivity == 1)
    return few if none is None else few | none
