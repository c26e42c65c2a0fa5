"""What it saves to train networks together: the time that one would take alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from setwise.experiments.config import Config
from setwise.experiments.train import Training

EPOCHS = 20  # that are timed, after as many that are not


def cost_of(
    configs: Sequence[Config], seconds: float, device: str | torch.device
) -> dict[str, Any]:
    """The cost of configs that took ``seconds`` together, and how often faster than one by one.

    One network is timed twice, now and on this device: in a ``plain`` training loop, and with its
    step ``compiled`` and replayed as that of an ensemble is. The time to compile is not counted to
    its disadvantage, while ``seconds`` contain it.
    """
    epochs = configs[0].schedule.epochs
    alone = {}
    for name, plain in (("plain", True), ("compiled", False)):
        training = Training(configs[:1], device, plain=plain)
        alone[name] = training.seconds_per_epoch(EPOCHS) * epochs
    return {
        "networks": len(configs),
        "seconds": seconds,
        "seconds_alone": alone,
        "times_faster": {name: len(configs) * each / seconds for name, each in alone.items()},
    }
