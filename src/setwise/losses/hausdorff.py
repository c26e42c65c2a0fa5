"""The Hausdorff loss, H1H: the worst-served target with its nearest output."""

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
    nearest_output_costs,
    nearest_target_costs,
    weighted,
)
from setwise.losses.fused import row_loss
from setwise.losses.presence import Presence, read_presence

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def hausdorff(
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
    r"""The largest cost, among the targets, of their nearest output (directed Hausdorff distance).

    .. math:: H_{1H}(X, Y) = \max_i w_i \min_j H(x_i, y_j)

    Equivalent dense code, for Bernoulli features::

        scores = target @ input.mT - softplus(input).sum(-1).unsqueeze(-2)   # [*, M, N]
        loss = -scores.amax(-1).amin(-1).mean()

    With ``directed=False`` the larger of both directions is taken; ``weight`` applies to the
    direction from targets to outputs alone.

    With ``presence``, logits [*, N], to choose an output costs ``-log c_j`` more, where ``c_j`` is
    the probability that it exists, and ``-log p(M)`` is added: that of as many outputs as targets.
    Undirected, the cost of an output is multiplied by ``c_j``.

    The other arguments are those of :func:`set_cross_entropy`. A set without targets costs 0
    (infinity if undirected and there are outputs); one with targets and no output, infinity.

    >>> import torch
    >>> hausdorff(torch.zeros(2, 3), torch.ones(4, 3))  # 3 ln 2
    tensor(2.0794)
    """
    given = (input, target, features, input_valid, target_valid, weight, reduction)
    if group is not None or is_dtensor(input):
        from setwise.losses import sharded  # not every PyTorch has torch.distributed

        with sharded.refusals_told(group, input):
            check_nearest(directed, impl)
        shards = sharded.read_shards(
            *(group, impl, presence, presence_weight, *given), loss="hausdorff", directed=directed
        )
        return sharded.hausdorff(shards, directed, impl, reduction)
    check_nearest(directed, impl)
    sets = check_call(*given)
    exists = read_presence(presence, presence_weight, input, sets)

    def general(sets: Sets, exists: Presence | None, reduction: str) -> Tensor:
        # Costs are never negative, and 0 where an element is not valid: it cannot be the largest.
        per_set = weighted(sets, nearest_output_costs(sets, exists, impl)).amax(dim=-1)
        if directed:
            return finish_rows(sets, per_set, exists, reduction)
        back = nearest_target_costs(sets, impl)
        if exists is not None:
            back = back * exists.probabilities()
        per_set = per_set.maximum(back.amax(dim=-1))
        return finish_rows(sets, per_set, exists, reduction, lacks_targets(sets))

    return row_loss(sets, exists, "worst", general, impl, reduction, directed=directed)
