"""Elements made of families side by side, and the form in which all of them are scored.

Legend: M targets, N outputs, F features per element, W numbers of their statistics; ``*`` any
leading dimensions.

Every family is an exponential family, so the negative cross entropy of a target element ``x_i``
under an output element ``y_j`` is a biased dot product::

    -H(x_i, y_j) = T(x_i) . eta(y_j) - A(y_j) + h(x_i)

and so is that of elements made of several. Where it is the square of a difference, it is computed
as one; the pairwise engine needs to know nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, get_args

import torch
from torch import Tensor

from setwise.features.bernoulli import Bernoulli
from setwise.features.family import Family, Scoring


class DotProduct(NamedTuple):
    """The pairwise scores of two sets, in factors: ``-H = T . eta - A + h``."""

    statistic: Tensor  # T(x)    [*, M, W]
    natural: Tensor  # eta(y)  [*, N, W]
    log_partition: Tensor  # A(y)    [*, N]
    base: Tensor | None  # h(x)    [*, M]; None when zero for every family in use


class Factors(NamedTuple):
    """The same as the pairwise engine takes it: what is a difference stays one.

    ::

        -H_ij = sum_{f >= D} q_if k_jf - sum_{f < D} c_f (q_if - k_jf)^2 - A_j + h_i

    Of the W numbers of an element, the first D are compared and the others multiplied.
    """

    queries: Tensor  # T(x)            [*, M, W]
    keys: Tensor  # m(y), eta(y)    [*, N, W]
    log_partition: Tensor  # A(y)            [*, N]
    base: Tensor | None  # h(x)            [*, M]; None when zero for every family in use
    sharpness: Tensor | None  # c               [D]; None if D is 0


class Features:
    """An element made of several families side by side, in the order given.

    >>> from setwise.features import Categorical
    >>> features = Features(Categorical(9), Categorical(3), Categorical(3))
    >>> features.width
    15
    """

    def __init__(self, *blocks: Family) -> None:
        if not blocks:
            raise ValueError("Features: needs at least one block, e.g. Features(Bernoulli(8))")
        for block in blocks:
            if not isinstance(block, Family):
                raise TypeError(
                    f"Features: every block must be an instance of a subclass of setwise.Family, "
                    f"as Bernoulli(8) is, got {block!r}"
                )
        self.blocks = blocks
        self.widths: list[int] = [block.width for block in blocks]
        self.width: int = sum(self.widths)
        #: Whether elements are binary features and nothing else, for which losses know a short cut.
        self.plain_bernoulli: bool = (
            len(blocks) == 1 and type(blocks[0]) is Bernoulli and blocks[0].weight == 1.0
        )
        #: Name, width and number of each block if fused kernels know them all; see `Family.kernel`.
        self.kernel: tuple[tuple[str, int, float], ...] | None = _kernel(blocks)
        #: How many numbers of an element, two for an angle, cost the square of a difference.
        self.comparable: int = sum(_compared(block) for block in blocks)
        #: An allowed target element [F] to stand where there is none; None if it is all zeros.
        self.blank: Tensor | None = None
        if any(block.blank != 0.0 for block in blocks):
            self.blank = torch.cat([torch.full((b.width,), b.blank) for b in blocks])

    def __repr__(self) -> str:
        return f"Features({', '.join(map(repr, self.blocks))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Features) and self.blocks == other.blocks

    def __hash__(self) -> int:
        return hash(self.blocks)

    def scored_as(self, scored_as: Scoring) -> Features:
        """The same features with all choices among classes scored in this way; see `Categorical`.

        >>> from setwise.features import Categorical
        >>> Features(Categorical(3), Bernoulli(1)).scored_as("bernoulli").blocks[0].scored_as
        'bernoulli'
        """
        if scored_as not in get_args(Scoring):
            known = ", ".join(map(repr, get_args(Scoring)))
            raise ValueError(f"scored_as: expected one of {known}, got {scored_as!r}")
        return Features(*(block.with_scoring(scored_as) for block in self.blocks))

    def split(self, elements: Tensor) -> list[Tensor]:
        """The blocks of a [*, F] tensor, each [*, width]."""
        if elements.dim() == 0 or elements.shape[-1] != self.width:
            raise ValueError(
                f"elements: expected {self.width} features in the last dimension for {self}, "
                f"got shape {tuple(elements.shape)}"
            )
        if len(self.blocks) == 1:
            return [elements]
        return list(elements.split(self.widths, dim=-1))

    def discretise(self, logits: Tensor) -> Tensor:
        """The element that outputs [*, F] answer with, in the space of the targets.

        Bits and counts are rounded, of classes the likeliest is taken, numbers and angles are kept.
        """
        return self._each(logits, lambda block, part: block.discretise(part))

    def mean(self, logits: Tensor) -> Tensor:
        """The expected target of outputs [*, F]: probabilities, means, rates, directions.

        >>> Features(Bernoulli(3)).mean(torch.tensor([-9.0, 0.0, 9.0]))
        tensor([1.2339e-04, 5.0000e-01, 9.9988e-01])
        """
        return self._each(logits, lambda block, part: block.mean(part))

    def from_probs(self, probs: Tensor) -> Tensor:
        """Logits for outputs that are already probabilities; the inverse of `mean`.

        Blocks that have no probabilities take what their `mean` gives: means, rates, directions.

        Probabilities nearer to 0 or 1 than the precision of their type are taken as that far
        away; the gradient there is the (large, finite) one of that nearest point, so an output
        that is confidently wrong can still recover.

        >>> Features(Bernoulli(3)).from_probs(torch.tensor([0.0, 0.5, 1.0]))
        tensor([-15.9424,   0.0000,  15.9424])
        """
        if not isinstance(probs, Tensor) or not probs.dtype.is_floating_point:
            given = probs.dtype if isinstance(probs, Tensor) else type(probs).__name__
            raise TypeError(f"probs: expected a floating-point tensor, got {given}")
        self.check_targets("probs", probs)
        return self._each(probs, lambda block, part: block.from_mean(part))

    def from_classes(self, classes: Tensor) -> Tensor:
        """One-hot targets [*, F] of the numbers of their classes: integers [*, blocks].

        All blocks must be choices. A number that is no class stands for none: all zeros.

        >>> from setwise.features import Categorical
        >>> Features(Categorical(2), Categorical(3)).from_classes(torch.tensor([[1, 0]]))
        tensor([[0., 1., 1., 0., 0.]])
        """
        if not all(block.is_choice for block in self.blocks):
            raise ValueError(f"classes: only choices have classes, but these are {self}")
        if classes.dim() == 0 or classes.shape[-1] != len(self.blocks):
            raise ValueError(
                f"classes: expected a class for each of the {len(self.blocks)} blocks in the last "
                f"dimension, got shape {tuple(classes.shape)}"
            )
        parts = [
            classes[..., k : k + 1] == torch.arange(width, device=classes.device)
            for k, width in enumerate(self.widths)
        ]
        return torch.cat(parts, dim=-1).to(torch.get_default_dtype())

    def check_targets(self, name: str, target: Tensor) -> None:
        """Raise ValueError, naming the argument, if any of the elements [*, F] is not allowed."""
        for block, part in zip(self.blocks, self.split(target), strict=True):
            block.check_targets(name, part)

    def random_targets(
        self, shape: Sequence[int], generator: torch.Generator | None = None
    ) -> Tensor:
        """Random target elements [*shape, F], on the generator's device, for trials and tests."""
        return torch.cat([block.random_targets(shape, generator) for block in self.blocks], -1)

    def average(self, elements: Tensor, dim: int) -> Tensor:
        """The average of target elements [*, F] over one of the leading dimensions."""
        if dim in (-1, elements.dim() - 1):
            raise ValueError(f"dim: {dim} is that of the features, expected one before it")
        return self._each(elements, lambda block, part: block.average(part, dim))

    def cost(self, logits: Tensor, target: Tensor) -> Tensor:
        """``H(x, y)`` of elements that are already paired: [*, F] twice -> [*]."""
        parts = zip(self.blocks, self.split(logits), self.split(target), strict=True)
        costs = [_times(block.weight, block.cost(y, x)) for block, y, x in parts]
        return costs[0] if len(costs) == 1 else torch.stack(costs).sum(0)

    def dot_product(
        self, logits: Tensor, target: Tensor, target_valid: Tensor | None = None
    ) -> DotProduct:
        """The factors of every pairwise score between the elements of two sets.

        ``logits`` [*, N, F] and ``target`` [*, M, F] share type, device and leading dimensions;
        ``target_valid`` [*, M] tells which targets are real.
        """
        queries, keys, log_partition, base, sharpness = self.factors(logits, target)
        if sharpness is None:
            return DotProduct(queries, keys, log_partition, base)
        D = len(sharpness)
        # Where terms cancel, they should at least be small.
        origin = _mean_element(queries[..., :D].detach(), target_valid)
        x, y = queries[..., :D] - origin, keys[..., :D] - origin
        own = -(sharpness * x.square()).sum(-1)
        return DotProduct(
            torch.cat([x, queries[..., D:]], dim=-1),
            torch.cat([2 * sharpness * y, keys[..., D:]], dim=-1),
            log_partition + (sharpness * y.square()).sum(-1),
            own if base is None else own + base,
        )

    def factors(self, logits: Tensor, target: Tensor) -> Factors:
        """What the pairwise engine computes scores from; arguments as of `dot_product`."""
        parts = zip(self.blocks, self.split(logits), self.split(target), strict=True)
        found = sorted((_factors(*part) for part in parts), key=lambda f: f.sharpness is None)
        if len(found) == 1:
            return found[0]
        queries, keys, log_partitions, all_bases, all_sharpness = zip(*found, strict=True)
        bases = [base for base in all_bases if base is not None]
        compared = [sharpness for sharpness in all_sharpness if sharpness is not None]
        return Factors(
            torch.cat(queries, dim=-1),
            torch.cat(keys, dim=-1),
            torch.stack(log_partitions).sum(0),
            torch.stack(bases).sum(0) if bases else None,
            torch.cat(compared) if compared else None,
        )

    def _each(self, elements: Tensor, change: Callable[[Family, Tensor], Tensor]) -> Tensor:
        """Every block changed by its own family."""
        parts = zip(self.blocks, self.split(elements), strict=True)
        return torch.cat([change(block, part) for block, part in parts], dim=-1)


def _kernel(blocks: tuple[Family, ...]) -> tuple[tuple[str, int, float], ...] | None:
    found = []
    for block in blocks:
        kernel = block.kernel
        if kernel is None:
            return None
        name, number = kernel
        found.append((name, block.width, number))
    return tuple(found)


def _compared(block: Family) -> int:
    """The size of a location, which may be more than the width; 0 without a `Family.curvature`."""
    if block.curvature is None:
        return 0
    return block.location(torch.zeros(1, block.width, device="cpu")).shape[-1]


def _factors(block: Family, logits: Tensor, target: Tensor) -> Factors:
    """Those of one block, with its weight."""
    statistic = block.statistic(target)
    if block.curvature is not None:
        location = block.location(logits)
        sharpness = location.new_full(location.shape[-1:], block.weight * block.curvature)
        return Factors(
            statistic, location, location.new_zeros(location.shape[:-1]), None, sharpness
        )
    natural, log_partition = block.natural(logits)
    base = block.base(target)
    return Factors(
        statistic,
        _times(block.weight, natural),
        _times(block.weight, log_partition),
        None if base is None else _times(block.weight, base),
        None,
    )


def _mean_element(elements: Tensor, valid: Tensor | None) -> Tensor:
    if valid is None:
        return elements.mean(dim=-2, keepdim=True)
    count = valid.sum(dim=-1).clamp(min=1)[..., None, None]
    return (elements * valid.unsqueeze(-1)).sum(dim=-2, keepdim=True) / count


def _times(weight: float, tensor: Tensor) -> Tensor:
    return tensor if weight == 1.0 else tensor * weight
