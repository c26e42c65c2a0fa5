"""Which output produced which target: with what probability, by chance, and most likely."""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.arguments import Sets, check_call
from setwise.features import Features
from setwise.kernels.assignment import UNMATCHED
from setwise.kernels.matchings import matching_probabilities
from setwise.kernels.sampling import sample_matchings as sample
from setwise.losses.matched import cheapest_matching, matching_costs, targets_given
from setwise.losses.presence import Presence, read_presence, too_few_outputs
from setwise.losses.set_likelihood import Method, matching_problem


def matching_marginals(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    method: Method = "auto",
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The probability that an output has produced a target, given that all were produced.

    The arguments are those of :func:`set_likelihood`, whose gradient by the costs this is. The
    result is [*, M, N]: every row of a valid target sums to 1, every column to at most 1, by
    ``method="bethe"`` as far as its rounds have settled. It has a gradient of its own, by Bethe's
    method one that has no further. A set that cannot be produced, because it has too few outputs,
    has zeros only.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> matching_marginals(torch.tensor([[0.0, 0.0], [1.0, -1.0]]), target)  # the second is better
    tensor([[0.1192, 0.8808],
            [0.8808, 0.1192]])
    """
    sets, exists = _check(
        input, target, features, presence, presence_weight, input_valid, target_valid, weight
    )
    pairs, _ = matching_probabilities(*matching_problem(sets, exists, method))
    pairs = pairs.masked_fill(too_few_outputs(sets)[:, None, None], 0.0)
    M, N = targets_given(target, sets), input.shape[-2]
    return pairs[:, :M, :N].reshape(*sets.lead, M, N)


def sample_matchings(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    samples: int = 1,
    *,
    generator: torch.Generator | None = None,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Matchings at random, each with the share that it has in the likelihood of the set.

    The arguments are those of :func:`set_likelihood`, by its exact method: for up to 18 targets.
    The result [samples, *, M] holds the index of each target's output, or -1 where a target is not
    valid or its set has too few outputs. The ``generator`` must be on the device of the input.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> sample_matchings(9 * target.flip(0), target, samples=3)
    tensor([[1, 0],
            [1, 0],
            [1, 0]])
    """
    if not isinstance(samples, int) or isinstance(samples, bool) or samples < 1:
        raise ValueError(f"samples: expected a number from 1 on, got {samples!r}")
    sets, exists = _check(
        input, target, features, presence, presence_weight, input_valid, target_valid, weight
    )
    with torch.no_grad():
        problem = matching_problem(sets, exists, "exact")
        scores = problem.scores + problem.odds.unsqueeze(1)
        found = sample(scores, problem.targets, problem.outputs, samples, generator)
    found = found.masked_fill(too_few_outputs(sets).unsqueeze(-1), UNMATCHED)
    M = targets_given(target, sets)
    return found[..., :M].reshape(samples, *sets.lead, M)


def most_likely_matching(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The matching of which the likelihood of the set has most: [*, M], the output of each target.

    The arguments are those of :func:`set_likelihood`. It is that of
    :func:`assignment_cross_entropy`, without its loss; -1 where a target has no output.

    >>> import torch
    >>> target = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> most_likely_matching(9 * target.flip(0), target)
    tensor([1, 0])
    """
    sets, exists = _check(
        input, target, features, presence, presence_weight, input_valid, target_valid, weight
    )
    with torch.no_grad():
        matching = cheapest_matching("input", sets, matching_costs(sets, exists))
    M = targets_given(target, sets)
    return matching[:, :M].reshape(*sets.lead, M)


def _check(
    input: Tensor,
    target: Tensor,
    features: Features | None,
    presence: Tensor | None,
    presence_weight: float,
    input_valid: Tensor | None,
    target_valid: Tensor | None,
    weight: Tensor | None,
) -> tuple[Sets, Presence | None]:
    sets = check_call(input, target, features, input_valid, target_valid, weight, "none")
    return sets, read_presence(presence, presence_weight, input, sets)
