"""The cells of the matrix: losses x families of elements x shapes, each with a dense equivalent.

Legend: B sets, N outputs and as many targets, F features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F_

import setwise as sw

Shape = tuple[int, int, int]
Step = Callable[[Tensor, Tensor], Tensor]

# (B, N, F): puzzles, detections, point clouds of an object, many features, a scene.
SHAPES: dict[str, Shape] = {
    "puzzle": (1000, 9, 15),
    "detr": (64, 300, 92),
    "shapenet": (32, 2048, 3),
    "mid": (8, 4096, 64),
    "cloud100k": (1, 100_000, 3),
}
# Those of training on a CPU, batches of few or of small sets.
CPU_SHAPES: dict[str, Shape] = {
    "few": (32, 16, 8),
    "batch": (64, 9, 15),
    "puzzle": (1000, 9, 15),
    "rules": (100, 5, 328),
    "pictures": (16, 100, 92),
    "detr": (16, 300, 92),
    "points": (4, 512, 3),
}
# To see the whole of it work, anywhere and within a minute.
QUICK: dict[str, Shape] = {"tiny": (2, 5, 6)}
BOX = 4  # numbers that stand beside the classes of a detection


@dataclass(frozen=True)
class Family:
    """What elements of F features are, and the cost of every pair as one writes it by hand."""

    features: Callable[[int], sw.Features]
    cost: Step  # logits [B, N, W] and target [B, M, W] -> [B, M, N]


def _bernoulli(z: Tensor, x: Tensor) -> Tensor:
    return F_.softplus(z).sum(-1).unsqueeze(-2) - x @ z.mT


def _categorical(z: Tensor, x: Tensor) -> Tensor:
    return -(x @ z.log_softmax(-1).mT)


def _gaussian(z: Tensor, x: Tensor) -> Tensor:
    squares = x.square().sum(-1).unsqueeze(-1) + z.square().sum(-1).unsqueeze(-2)
    return 0.5 * squares - x @ z.mT


def _detection(z: Tensor, x: Tensor) -> Tensor:
    classes = _categorical(z[..., :-BOX], x[..., :-BOX])
    return classes + _gaussian(z[..., -BOX:], x[..., -BOX:])


FAMILIES = {
    "Bernoulli": Family(lambda F: sw.Features(sw.Bernoulli(F)), _bernoulli),
    "Categorical": Family(lambda F: sw.Features(sw.Categorical(F)), _categorical),
    "Gaussian": Family(lambda F: sw.Features(sw.Gaussian(F)), _gaussian),
    # As DETR has it: a class and a box.
    "detection": Family(lambda F: sw.Features(sw.Categorical(F), sw.Gaussian(BOX)), _detection),
}


@dataclass(frozen=True)
class Loss:
    """One of ours, as a user calls it, and the same from all costs [B, M, N] where that exists."""

    ours: Callable[..., Tensor]  # (logits, target, features)
    dense: Callable[[Tensor], Tensor] | None
    most_elements: float = math.inf  # of a set
    most_scores: float = math.inf  # of all sets
    families: tuple[str, ...] = tuple(FAMILIES)

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph can hold it."""
        function = self.ours.func if isinstance(self.ours, partial) else self.ours
        known = sw.losses.LOSSES.values()
        return all(loss.capturable for loss in known if loss.function is function)

    def fits(self, family: str, shape: Shape) -> bool:
        """Whether there is such a cell: solvers of matchings would take minutes for large sets."""
        B, N, _ = shape
        fits = self.most_elements >= N and self.most_scores >= B * N * N
        return fits and family in self.families


def _soft(cost: Tensor, temperature: float = 1.0) -> Tensor:
    return -temperature * torch.logsumexp(-cost / temperature, dim=-1).sum(-1).mean()


def _nearest(cost: Tensor, *dims: int) -> Tensor:
    """The average over the elements of one side of their nearest on the other; of each side."""
    return torch.stack([cost.amin(dim).mean(-1) for dim in dims]).sum(0).mean()


def _chamfer(logits: Tensor, target: Tensor, features: sw.Features) -> Tensor:
    return sw.chamfer(logits, target)


LOSSES = {
    "SH": Loss(sw.set_cross_entropy, _soft),
    "SH t=2": Loss(partial(sw.set_cross_entropy, temperature=2.0), partial(_soft, temperature=2.0)),
    "A1H": Loss(sw.set_average, lambda cost: _nearest(cost, -1)),
    "A1H both": Loss(partial(sw.set_average, directed=False), lambda cost: _nearest(cost, -1, -2)),
    "H1H": Loss(sw.hausdorff, lambda cost: cost.amin(-1).amax(-1).mean()),
    "chamfer": Loss(_chamfer, lambda cost: _nearest(2 * cost, -1, -2), families=("Gaussian",)),
    "assignment": Loss(sw.assignment_cross_entropy, None, most_elements=512),
    "likelihood, exact": Loss(partial(sw.set_likelihood, method="exact"), None, most_elements=12),
    "likelihood, Bethe": Loss(partial(sw.set_likelihood, method="bethe"), None, most_scores=1e7),
}


@dataclass(frozen=True)
class Cell:
    """One loss of elements of one family, in one shape."""

    loss: str
    family: str
    shape: str
    sizes: Shape

    @property
    def features(self) -> sw.Features:
        return FAMILIES[self.family].features(self.sizes[2])

    def leaves(self, device: str) -> tuple[Tensor, Tensor]:
        """Logits, which want a gradient, and targets."""
        (B, N, _), features = self.sizes, self.features
        generator = torch.Generator(device).manual_seed(0)
        target = features.random_targets((B, N), generator)
        logits = torch.randn(B, N, features.width, generator=generator, device=device)
        return logits.requires_grad_(), target

    def ours(self) -> Step:
        """As a user calls it."""
        return partial(_call, LOSSES[self.loss].ours, self.features)

    def dense(self) -> Step | None:
        """From all costs, or None where no few lines do it."""
        reduce, cost = LOSSES[self.loss].dense, FAMILIES[self.family].cost
        return None if reduce is None else lambda logits, target: reduce(cost(logits, target))


def _call(loss: Any, features: sw.Features, logits: Tensor, target: Tensor) -> Tensor:
    return loss(logits, target, features)


def cells(
    shapes: dict[str, Shape], losses: Iterable[str] = (), families: Iterable[str] = ()
) -> Iterator[Cell]:
    """Those of some losses and families, or of all; shape by shape."""
    chosen = itertools.product(shapes, losses or LOSSES, families or FAMILIES)
    for shape, loss, family in chosen:
        if LOSSES[loss].fits(family, shapes[shape]):
            yield Cell(loss, family, shape, shapes[shape])
