"""Checks of values: NaN, range. Made only where reading a value costs no synchronisation.

That is on CPU tensors in eager mode, and on any device while
``torch.autograd.set_detect_anomaly(True)`` is on: the mode in which PyTorch, too, trades speed for
early errors.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

# From so many values on, NumPy finds the extremes of an array faster, in half the time.
MANY = 2**15
_OF_NUMPY = (torch.float32, torch.float64)


def are_readable(tensor: Tensor) -> bool:
    """Whether the values of a tensor can be looked at for free."""
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    if _get_current_dispatch_mode() is not None:  # fake tensors and tracing: there are no values
        return False
    return tensor.device.type == "cpu" or (
        tensor.device.type != "meta" and torch.is_anomaly_enabled()
    )


def require(name: str, values: Tensor, low: float, high: float, what: str) -> None:
    """Raise unless every value is finite and in [low, high]; ``what`` says what was expected."""
    if values.numel() == 0 or not are_readable(values):
        return
    least, most = _extremes(values.detach())
    if not (math.isfinite(least) and math.isfinite(most) and least >= low and most <= high):
        raise ValueError(f"{name}: {what}, found values from {least} to {most}")


def require_finite(name: str, values: Tensor) -> None:
    """Raise if any value is NaN or infinite."""
    if not are_readable(values):
        return
    # A finite sum has only finite terms, and is the cheapest pass there is; the reverse need not
    # hold, for large terms may overflow, so only then is every value looked at.
    if not math.isfinite(values.detach().sum().item()):
        require(name, values, -math.inf, math.inf, "must be finite")


def _extremes(values: Tensor) -> tuple[float, float]:
    """The least and the greatest; both NaN if any value is."""
    if values.numel() >= MANY and values.device.type == "cpu" and values.dtype in _OF_NUMPY:
        array = values.numpy(force=True)
        return array.min().item(), array.max().item()
    least, most = values.aminmax()
    return least.item(), most.item()
