"""Pictures of what kept networks make of Blocksworld states, for figures drawn elsewhere.

Legend: R networks, S states; H, W height and width in pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from setwise import environment
from setwise.experiments.reconstructions import Reconstructions
from setwise.experiments.saved_networks import load_network_and_task
from setwise.experiments.tasks.picture_error import PictureError
from setwise.experiments.tasks.task import DATA


def reconstruct(
    networks: Sequence[Path], states: Sequence[int], data: Path = DATA
) -> Reconstructions:
    """What networks that were kept make of some states of the data they learned from.

    All must have learned from the same data, which lie in the folder ``data``.
    """
    if not networks:
        raise ValueError("networks: there are none; were they kept, with --keep best?")
    loaded = [load_network_and_task(path, data=data) for path in networks]
    loaded.sort(key=lambda found: (found[0].scenario, found[0].loss, found[0].seed))
    configs = tuple(config for config, _, _ in loaded)
    if len({config.data for config in configs}) > 1:
        raise ValueError("networks: they learned from different data")
    task = loaded[0][2]
    measure = task.measure
    if not isinstance(measure, PictureError):
        raise ValueError(f"networks: {configs[0].experiment} is about no pictures")
    sets = task.targets[list(states)]
    with torch.no_grad():
        outputs = [_bytes(measure.pictures_of_logits(network(sets))) for _, network, _ in loaded]
        inputs = _bytes(measure.pictures(sets))
    return Reconstructions(
        configs,
        tuple(states),
        inputs,
        np.stack(outputs),
        environment.describe(sets.device),
        datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _bytes(pictures: Tensor) -> NDArray[np.uint8]:
    """[S, 3, H, W] in [0, 1] -> [S, H, W, 3]."""
    found: NDArray[np.uint8] = (255 * pictures.movedim(1, -1)).round().byte().numpy()
    return found
