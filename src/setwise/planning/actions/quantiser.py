"""Vector quantisation in the cost that pairs of the same teach.

Legend: E points, A numbers of a point, D directions that tell, K codes.

How points vary where nothing has changed is learned from pairs of the same: along such directions
differences cost little, along others much. It is the cost of a Gaussian whose covariance is that of
the pairs (relevant component analysis; Bar-Hillel et al., 2005), and codes are the centres that
cost all points least. There are as many as stay stable, that is, as many as give nearly all pairs
one code, none of which is that of a few odd points.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

_RIDGE = 1e-3  # of the mean variance of pairs, added to all
_STILL = 1e-8  # or, if that is more, of the mean variance of points: pairs may not differ at all
_TELLS = 2.0  # the variance, in units of that of pairs, from which on a direction tells
_MOST_DIRECTIONS = 64
_MOST_CODES = 24
FEWEST_PAIRS = 4  # of which anything can be learned
_SAMPLE = 4000  # points that codes are learned from, at most
_STARTS = 5
_STABLE = 0.98  # the share of pairs with one code
_ODD = 0.1  # of the points that a code would have if all had as many: fewer are odd ones
_HOPELESS = 0.8  # so unstable, there is no use in still more codes
_TENSORS = ("centre", "directions", "codebook")


@dataclass(frozen=True)
class Quantiser:
    """A code for each point [A]."""

    centre: Tensor  # [A]
    directions: Tensor  # [A, D]; differences along them are in units of those of pairs
    codebook: Tensor  # [K, D]

    @classmethod
    def fit(cls, points: Tensor, pairs: Tensor, *, patience: int = 1) -> Quantiser:
        """Learn from points [E, A], of which pairs [n, 2] are of the same.

        More codes are tried until so many numbers of them in a row, ``patience``, are hopeless.
        """
        centre = points.mean(0)
        points = points - centre
        if len(pairs) < FEWEST_PAIRS:  # nothing tells more than that they are points
            return cls(centre, points.new_zeros(points.shape[1], 1), points.new_zeros(1, 1))
        count = _stable_count(points, pairs, patience)
        directions = _directions(points, pairs)
        return cls(centre, directions, _codebook(points @ directions, count))

    @property
    def count(self) -> int:
        """How many codes there are."""
        return len(self.codebook)

    def encode(self, points: Tensor) -> Tensor:
        """The codes [E] of points [E, A]."""
        return self.nearest(points)[0]

    def nearest(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """The codes [E] of points [E, A], and how far they are from their centres."""
        seen = (points - self.centre) @ self.directions
        distance, code = _distances(seen, self.codebook).min(-1)
        return code, distance

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """What it is made of, by names for a file."""
        return {f"{prefix}.{name}": getattr(self, name) for name in _TENSORS}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], prefix: str) -> Quantiser:
        """What `tensors` gave; from a file of somebody else's it may be anything."""
        centre, directions, codebook = parts = [tensors[f"{prefix}.{name}"] for name in _TENSORS]
        shapes = [tuple(part.shape) for part in parts]
        if (
            [len(shape) for shape in shapes] != [1, 2, 2]
            or 0 in (*shapes[1], *shapes[2])
            or len(centre) != len(directions)
            or directions.shape[1] != codebook.shape[1]
        ):
            raise ValueError(
                f"{prefix}: expected a centre [A], directions [A, D] and a codebook [K, D], "
                f"got {shapes}"
            )
        for name, part in zip(_TENSORS, parts, strict=True):
            require_numbers(f"{prefix}.{name}", part, centre.dtype)
        return cls(centre, directions, codebook)


def require_numbers(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Refuse a tensor from a file whose numbers cannot be calculated with."""
    if tensor.dtype not in (torch.float32, torch.float64) or tensor.dtype != dtype:
        raise ValueError(f"{name}: expected real numbers of one kind, got {tensor.dtype}")
    if not bool(tensor.isfinite().all()):
        raise ValueError(f"{name}: expected finite numbers")


def share_of_pairs(codes: Tensor, pairs: Tensor) -> float:
    """The share of pairs [n, 2] with one code."""
    return float((codes[pairs[:, 0]] == codes[pairs[:, 1]]).double().mean())


def _stable_count(points: Tensor, pairs: Tensor, patience: int) -> int:
    """How many codes stay stable: half of the pairs is learned from, the other half is asked."""
    learned, asked = pairs.chunk(2)
    seen, found, hopeless = points @ _directions(points, learned), 1, 0
    for count in range(2, min(_MOST_CODES, len(seen)) + 1):
        codes = _distances(seen, _codebook(seen, count)).argmin(-1)
        stable, least = share_of_pairs(codes, asked), int(codes.bincount(minlength=count).min())
        if stable >= _STABLE and least >= _ODD * len(codes) / count:
            found = count
        hopeless = hopeless + 1 if stable < _HOPELESS else 0
        if hopeless == patience:
            break
    return found


def _directions(points: Tensor, pairs: Tensor) -> Tensor:
    """[A, D] along which points [E, A] differ by more than pairs do, in units of these."""
    apart = (points[pairs[:, 0]] - points[pairs[:, 1]]).double()
    within = apart.mT @ apart / (2 * len(apart))
    size = len(within)
    least = _STILL * points.double().square().mean()  # the points are centred
    ridge = torch.maximum(_RIDGE * within.trace() / size, least)
    within += ridge.clamp(min=1e-300) * torch.eye(size, dtype=within.dtype)
    variance, axes = torch.linalg.eigh(within)
    white = axes / variance.sqrt()
    seen = points.double() @ white
    strength, tell = torch.linalg.eigh(seen.mT @ seen / len(seen))
    strength, tell = strength.flip(0)[:_MOST_DIRECTIONS], tell.flip(1)[:, :_MOST_DIRECTIONS]
    kept = strength >= _TELLS
    kept[0] = True
    return (white @ tell[:, kept]).to(points)


def _codebook(seen: Tensor, count: int) -> Tensor:
    """Centres [K, D] near which the points [E, D] lie: k-means, the best of some starts."""
    from sklearn.cluster import KMeans  # type: ignore[import-untyped]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]

    # Drawn at random: elements of sets may come in an order, of which every fourth is one thing.
    order = torch.randperm(len(seen), generator=torch.Generator().manual_seed(0))
    few = seen[order[:_SAMPLE]]
    with warnings.catch_warnings():  # of fewer different points than codes, which are not stable
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(count, n_init=_STARTS, random_state=0).fit(few.numpy())
    return torch.from_numpy(found.cluster_centers_).to(seen)


def _distances(seen: Tensor, codebook: Tensor) -> Tensor:
    """[E, K], the same for a point alone and among many, and exact where points do not shake."""
    return torch.cdist(seen, codebook, compute_mode="donot_use_mm_for_euclid_dist")
