"""Random layers whose draws are a function of a key instead of a generator's state.

A generator's draws depend on everything drawn before: a network trained among others would see
other noise than alone. A layer with a ``key`` draws a hash of the key and the position in the
tensor (a counter-based generator, as Salmon et al., 2011, call it), so that the same key gives the
same noise: alone, under ``torch.vmap``, in a compiled step and in a replayed CUDA graph.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class KeyedLayer(nn.Module):
    """A layer that draws from PyTorch's generator unless it has a key, a 0-dim int64 tensor.

    With a key it draws the same each time it is called: a network that calls one twice in a forward
    pass has the same noise twice, where two layers would have two keys.
    """

    key: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("key", None, persistent=False)

    def uniform(self, like: Tensor) -> Tensor:
        """Draws from (0, 1) of the shape of a tensor, in float32 or wider.

        Never 0 or 1, so that the logarithm of a draw, and of one minus it, is finite.
        """
        dtype = torch.promote_types(like.dtype, torch.float32)
        if self.key is not None:
            return keyed_uniform(self.key, like.shape).to(dtype)
        # ``rand`` returns multiples of half the machine precision from 0 to just below 1, and the
        # bounds are the outermost two inside: 0 alone is moved.
        half_eps = torch.finfo(dtype).eps / 2
        return torch.rand_like(like, dtype=dtype).clamp(half_eps, 1 - half_eps)


class KeyedDropout(KeyedLayer):
    """As ``nn.Dropout(p)``, which it is in evaluation and without a key."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return input
        if self.key is None:
            return nn.functional.dropout(input, self.p)
        kept = self.uniform(input) >= self.p
        return torch.where(kept, input / (1 - self.p), 0.0) if self.p < 1 else input * 0.0

    def extra_repr(self) -> str:
        return f"p={self.p}"


def with_keyed_dropout(module: nn.Module) -> nn.Module:
    """A copy of a module in which every ``nn.Dropout`` is a `KeyedDropout`."""
    module = copy.deepcopy(module)
    for parent in list(module.modules()):
        # Not ``named_children``, which passes over a layer that stands there twice.
        for name, child in parent._modules.items():
            if type(child) is nn.Dropout:
                setattr(parent, name, KeyedDropout(child.p).train(child.training))
    return module


def keyed_layers(module: nn.Module) -> dict[str, KeyedLayer]:
    """The layers of a module that can draw by key, by name."""
    return {name: m for name, m in module.named_modules() if isinstance(m, KeyedLayer)}


def keyed_uniform(key: Tensor, shape: torch.Size) -> Tensor:
    """Odd multiples of 2^-24 in float32: a hash of a key and of the position in the tensor.

    Keys are 63 well-mixed bits, themselves hashes: of two that are nearly the same, the draws may
    have some numbers in common.

    >>> key = torch.tensor(7)
    >>> keyed_uniform(key, torch.Size([2, 2])).equal(keyed_uniform(key, torch.Size([4])).view(2, 2))
    True
    """
    low = ((key << 32) >> 32).to(torch.int32)
    high = (key >> 32).to(torch.int32)
    # 32 bits a number: twice the speed of 64 on a GPU and more than that on a CPU. Each key has an
    # arithmetic progression of its own, so that no two draw the same numbers in another order.
    # Nothing but shifts is done to the key itself: compiled, a large constant that meets a single
    # number is rounded to float32 (seen in PyTorch 2.11).
    position = torch.arange(shape.numel(), dtype=torch.int32, device=key.device)
    bits = _mix(position * (2 * high + 1) + low)
    return (((bits >> 9) & 0x7FFFFF).to(torch.float32) + 0.5).reshape(shape) * 2.0**-23


def _mix(x: Tensor) -> Tensor:
    """Every bit of a 32-bit integer depends on every other: the finaliser of MurmurHash3."""
    x = (x ^ ((x >> 16) & 0xFFFF)) * _signed(0x85EBCA6B)
    x = (x ^ ((x >> 13) & 0x7FFFF)) * _signed(0xC2B2AE35)
    return x ^ ((x >> 16) & 0xFFFF)


def _signed(unsigned: int) -> int:
    return unsigned - 2**32 if unsigned >= 2**31 else unsigned
