"""Random orders and chances that depend on nothing but a seed and a position.

Legend: K ensemble members, b examples of a batch.

Random numbers drawn from a stream depend on everything drawn before. Here each is a hash of what
it is for (the seed of the member, the epoch, the example, the element), so that a member sees the
same orders whether it is trained alone or among others, on any device, and after a resumption.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

# Tells chances from orders and noise, in whose keys it does not occur at this place.
_CHANCE = -2


def hashed(*keys: Tensor | int) -> Tensor:
    """63 well-mixed bits for each combination of integers, which broadcast against each other.

    >>> hashed(1, torch.tensor([1, 2])).tolist() == hashed(1, torch.tensor([1, 2])).tolist()
    True
    >>> len(set((hashed(torch.arange(100)[:, None], torch.arange(100)) % 2**40).flatten().tolist()))
    10000
    """
    state: Tensor | int = 0
    for key in keys:
        state = _mix(torch.as_tensor(key) + _wrap(0x9E3779B97F4A7C15) + state * 31)
    assert isinstance(state, Tensor)
    return state & (2**63 - 1)


def random_order(length: int, *keys: Tensor) -> Tensor:
    """A permutation of ``range(length)`` for each combination of keys: [*keys, length]."""
    position = torch.arange(length, device=keys[0].device)
    return hashed(*(key.unsqueeze(-1) for key in keys), position).argsort(dim=-1)


class Chances:
    """Random numbers for the examples of a step, those of each its own.

    Each call of `uniform` asks anew, and gives an example the same answer wherever it is asked: by
    a member alone or among others, on any device, and after a resumption.
    """

    def __init__(self, seeds: Tensor, epoch: Tensor, rows: Tensor) -> None:
        """Of the examples ``rows`` [K, b], as members with the ``seeds`` [K] see them."""
        self._keys = hashed(seeds.unsqueeze(-1), epoch, rows, _CHANCE)
        self._questions = itertools.count()

    def uniform(self, *shape: int) -> Tensor:
        """Numbers [K, b, *shape] of [0, 1), in steps of 2^-24."""
        size = torch.Size(shape).numel()
        position = torch.arange(size, device=self._keys.device)
        # The long key comes last: what is mixed before it is small.
        drawn = hashed(self._keys.unsqueeze(-1), next(self._questions), position)
        return ((drawn >> 39).float() * 2**-24).reshape(*self._keys.shape, *shape)


def _mix(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64 (Steele et al., 2014) in wrapping 64-bit arithmetic."""
    x = (x ^ _shifted(x, 30)) * _wrap(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _wrap(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Shifted right with zeros, where PyTorch's shift repeats the sign."""
    return (x >> bits) & (2 ** (64 - bits) - 1)


def _wrap(unsigned: int) -> int:
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned
