"""The set average, A1H: the directed Chamfer distance with cross entropy as the element cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from setwise.arguments import Reduction, Sets, check_call, is_dtensor
from setwise.features import Features
from setwise.kernels.dispatch import Impl
from setwise.losses.costs import (
    check_nearest,
    finish_rows,
    lacks_targets,
    mean_over_outputs,
    mean_over_targets,
    nearest_output_costs,
    nearest_target_costs,
)
from setwise.losses.fused import row_loss
from setwise.losses.presence import Presence, read_presence

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def set_average(
    input: Tensor,
    target: Tensor,
    features: Features | None = None,
    *,
    directed: bool = True,
    presence: Tensor | None = None,
    presence_weight: float = 1.0,
    input_valid: Tensor | None = None,
    target_valid: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    impl: Impl = "auto",
    group: ProcessGroup | None = None,
) -> Tensor:
    r"""Average over the targets of the cost of the nearest output (directed Chamfer distance).

    .. math:: A_{1H}(X, Y) = \frac{1}{\sum_i w_i} \sum_i w_i \min_j H(x_i, y_j)

    Equivalent dense code, for Bernoulli features::

        scores = target @ input.mT - softplus(input).sum(-1).unsqueeze(-2)   # [*, M, N]
        loss = -scores.amax(-1).mean(-1).mean()

    With ``directed=False`` the average over the outputs of the cost of their nearest target is
    added, as point-cloud libraries do; ``weight`` applies to the first term alone.

    With ``presence``, logits [*, N], to choose an output costs ``-log c_j`` more, where ``c_j`` is
    the probability that it exists, and ``-log p(M)`` is added: that of as many outputs as targets.
    Undirected, an output counts by ``c_j``.

    The other arguments are those of :func:`set_cross_entropy`. A set without targets costs 0
    (infinity if undirected and there are outputs); one with targets and no output, infinity.

    >>> import torch, setwise as sw
    >>> bernoulli = sw.Features(sw.Bernoulli(2))
    >>> X = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    >>> Y1 = bernoulli.from_probs(torch.tensor([[0.1, 0.5], [0.1, 0.5]]))
    >>> round(2 * sw.set_average(Y1, X).item(), 4)  # -ln 0.2025
    1.597
    """
    given = (input, target, features, input_valid, target_valid, weight, reduction)
    if group is not None or is_dtensor(input):
        from setwise.losses import sharded  # not every PyTorch has torch.distributed

        with sharded.refusals_told(group, input):
            check_nearest(directed, impl)
        shards = sharded.read_shards(
            *(group, impl, presence, presence_weight, *given), loss="set_average", directed=directed
        )
        return sharded.set_average(shards, directed, impl, reduction)
    check_nearest(directed, impl)
    sets = check_call(*given)
    exists = read_presence(presence, presence_weight, input, sets)

    def general(sets: Sets, exists: Presence | None, reduction: str) -> Tensor:
        per_set = mean_over_targets(sets, nearest_output_costs(sets, exists, impl))
        if directed:
            return finish_rows(sets, per_set, exists, reduction)
        back = mean_over_outputs(sets, nearest_target_costs(sets, impl), exists)
        return finish_rows(sets, per_set + back, exists, reduction, lacks_targets(sets))

    return row_loss(sets, exists, "mean", general, impl, reduction, directed=directed)
