"""Whether all that a picture shows was read right.

Legend: K members, s examples, N outputs, M targets, F features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from setwise.features import Features


@dataclass(frozen=True)
class ReadRight:
    """The share of pictures in which every object is found, as it looks and where it is.

    Of the outputs of a picture as many are taken as there are objects, the likeliest to exist. An
    object is found if one of them has all of its classes, and each of its numbers to less than
    ``within``:

    ``read``    the share of pictures whose objects are all found
    ``looks``   the same by classes alone
    ``off``     by how much numbers of objects are off, on average; each is compared with the taken
                output nearest to it
    """

    within: tuple[float, ...]  # for each number of a place
    metric: str = "read"
    curve_examples: int | None = 500
    learned: str | None = None

    def __call__(
        self, logits: Tensor, finite: Tensor, targets: Tensor, features: Features
    ) -> dict[str, Tensor]:
        wanted = targets[..., :-1]
        taken = most_present(logits, wanted.shape[-2])
        alike = torch.ones((), dtype=torch.bool, device=logits.device)
        places = []
        for block, own, right in zip(
            features.blocks, features.split(taken), features.split(wanted), strict=True
        ):
            if block.is_choice:
                alike = alike & (own.argmax(-1).unsqueeze(-2) == right.argmax(-1).unsqueeze(-1))
            else:
                places.append((own.unsqueeze(-3) - right.unsqueeze(-2)).abs())
        off = torch.cat(places, dim=-1)  # [K, s, M, M, numbers]
        near = (off < torch.tensor(self.within, device=off.device)).all(-1)
        found = {
            "read": (alike & near).any(-1).all(-1).float(),
            "looks": alike.any(-1).all(-1).float(),
        }
        found = {name: value.masked_fill(~finite, 0.0) for name, value in found.items()}
        return found | {"off": off.mean(-1).amin(-1).mean(-1).masked_fill(~finite, 2.0)}

    def total(self, values: Tensor) -> Tensor:
        return values.mean(dim=-1)

    def to(self, device: torch.device) -> ReadRight:
        return self


def most_present(outputs: Tensor, count: int) -> Tensor:
    """Of outputs [*, N, F + 1] the ``count`` that are likeliest to exist: [*, count, F]."""
    chosen = outputs[..., -1].topk(count, dim=-1).indices.unsqueeze(-1)
    return outputs[..., :-1].gather(-2, chosen.expand(*chosen.shape[:-1], outputs.shape[-1] - 1))
