"""What the experiments of the paper (Asai, 2018, arXiv 1812.01217) have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from setwise.experiments.experiment import Reference

# The four losses of the paper, in its order.
LOSSES = ("ordered_cross_entropy", "set_cross_entropy", "set_average", "hausdorff")
SH = "set_cross_entropy"


def published(
    caption: str,
    scenarios: Sequence[str],
    values: Mapping[str, Sequence[float]],
    *,
    decimals: int = 2,
    other_scale: str = "",
) -> Reference:
    """Numbers of the paper: for each loss one a scenario, to as many decimals as it prints."""
    by_scenario = {
        loss: dict(zip(scenarios, numbers, strict=True)) for loss, numbers in values.items()
    }
    return Reference("the paper", by_scenario, decimals, caption, other_scale)
