"""Codes of looks: which pictures show the same thing, whatever the light.

Legend: E pictures, P pixels along a patch, A numbers of a picture, D directions that tell, K codes.

Light multiplies what is seen, so that pictures are compared by the logarithms of their pixels. How
these vary where nothing has changed is learned from pairs of pictures of one thing: along such
directions differences cost little, along others much. It is the cost of a Gaussian whose covariance
is that of the pairs (relevant component analysis; Bar-Hillel et al., 2005), and codes are the
centres that cost all pictures least: vector quantisation. There are as many as stay stable, that
is, as many as give nearly all pairs one code, none of which is that of a few odd pictures.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_SIDE = 8  # pixels of a patch that is compared
_DARK = 0.05  # of a brightness of 1: what is darker is all the same
_RIDGE = 1e-3  # of the mean variance of pairs, added to all
_TELLS = 2.0  # the variance, in units of that of pairs, from which on a direction tells
_MOST_DIRECTIONS = 64
_SAMPLE = 4000  # pictures that codes are learned from, at most
_STARTS = 5
_STABLE = 0.98  # the share of pairs with one code
_ODD = 0.1  # of the pictures that a code would have if all had as many: fewer are odd ones


@dataclass(frozen=True)
class Looks:
    """A code for each picture [*, 3, P, P] in [0, 1]."""

    centre: Tensor  # [A]
    directions: Tensor  # [A, D]; differences along them are in units of those of pairs
    codebook: Tensor  # [K, D]
    typical: Tensor  # [K, 3, P, P]: what pictures of each code look like
    stable: float  # the share of pairs it was learned from that have one code

    @classmethod
    @torch.no_grad()
    def fit(
        cls, pictures: Tensor, pairs: Tensor, count: int | None = None, *, most: int = 32
    ) -> Looks:
        """Learn from pictures [E, 3, P, P], of which pairs [n, 2] show the same thing.

        There are ``count`` codes; None finds as many as stay stable, ``most`` at most.
        """
        if pairs.dim() != 2 or pairs.shape[1] != 2 or len(pairs) < 4:
            raise ValueError(
                f"pairs: expected at least four, of two pictures each, got {tuple(pairs.shape)}"
            )
        numbers = comparable(pictures)
        numbers, centre = numbers - numbers.mean(0), numbers.mean(0)
        if count is None:
            count = _stable_count(numbers, pairs, most)
        directions = _directions(numbers, pairs)
        seen = numbers @ directions
        codebook = _codebook(seen, count)
        codes = _nearest(seen, codebook)
        typical = torch.stack([pictures[codes == code].mean(0) for code in range(count)])
        return cls(centre, directions, codebook, typical, _stability(codes, pairs))

    @property
    def count(self) -> int:
        """How many codes there are."""
        return len(self.codebook)

    @torch.no_grad()
    def encode(self, pictures: Tensor) -> Tensor:
        """The codes [*] of pictures [*, 3, P, P]."""
        if pictures.shape[-3:] != self.typical.shape[1:]:
            expected = ", ".join(map(str, self.typical.shape[1:]))
            raise ValueError(f"pictures: expected [*, {expected}], got {tuple(pictures.shape)}")
        flat = pictures.reshape(-1, *pictures.shape[-3:])
        seen = (comparable(flat) - self.centre) @ self.directions
        return _nearest(seen, self.codebook).reshape(pictures.shape[:-3])

    def decode(self, codes: Tensor) -> Tensor:
        """What is typical of codes [*]: [*, 3, P, P]."""
        return self.typical[codes]


def comparable(pictures: Tensor) -> Tensor:
    """Pictures [E, 3, P, P] as numbers [E, A] that light moves alike."""
    small = torch.nn.functional.adaptive_avg_pool2d(pictures, _SIDE)
    return (small + _DARK).log().flatten(1)


def _stable_count(numbers: Tensor, pairs: Tensor, most: int) -> int:
    """How many codes stay stable: half of the pairs is learned from, the other half is asked."""
    learned, asked = pairs.chunk(2)
    seen, found = numbers @ _directions(numbers, learned), 1
    for count in range(2, min(most, len(seen)) + 1):
        codes = _nearest(seen, _codebook(seen, count))
        even = len(codes) / count
        if _stability(codes, asked) >= _STABLE and codes.bincount().min() >= _ODD * even:
            found = count
    return found


def _stability(codes: Tensor, pairs: Tensor) -> float:
    """The share of pairs with one code."""
    return float((codes[pairs[:, 0]] == codes[pairs[:, 1]]).double().mean())


def _nearest(seen: Tensor, codebook: Tensor) -> Tensor:
    return torch.cdist(seen, codebook).argmin(-1)


def _directions(numbers: Tensor, pairs: Tensor) -> Tensor:
    """[A, D] along which numbers [E, A] differ by more than pairs do, in units of these."""
    apart = (numbers[pairs[:, 0]] - numbers[pairs[:, 1]]).double()
    within = apart.mT @ apart / (2 * len(apart))
    size = len(within)
    within += _RIDGE * within.trace() / size * torch.eye(size, dtype=within.dtype)
    variance, axes = torch.linalg.eigh(within)
    white = axes / variance.sqrt()
    seen = numbers.double() @ white
    strength, tell = torch.linalg.eigh(seen.mT @ seen / len(seen))
    kept = strength.flip(0)[:_MOST_DIRECTIONS] > _TELLS
    return (white @ tell.flip(1)[:, :_MOST_DIRECTIONS][:, kept]).to(numbers)


def _codebook(seen: Tensor, count: int) -> Tensor:
    """Centres [K, D] near which the points [n, D] lie: k-means, the best of some starts."""
    from sklearn.cluster import KMeans  # type: ignore[import-untyped]

    if not 1 <= count <= len(seen):
        raise ValueError(f"count: expected 1 to {len(seen)}, as many as pictures, got {count}")
    few = seen[:: -(-len(seen) // _SAMPLE)]
    found = KMeans(count, n_init=_STARTS, random_state=0).fit(few.numpy())
    return torch.from_numpy(found.cluster_centers_).to(seen)
