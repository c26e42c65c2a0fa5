"""How PyTorch looks at a call: short cuts are for eager ones, not differentiated forwards."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.forward_ad import unpack_dual
from torch.utils._python_dispatch import _get_current_dispatch_mode


def is_eager() -> bool:
    """Whether no compiler, transform of ``torch.func`` or mode, as of fake tensors, looks on."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or _get_current_dispatch_mode() is not None
    )


def apply(function: type[Function], *args: Any) -> Any:
    """``function.apply(*args)`` without its looking at the signature, which outlasts a kernel.

    That is for arguments by name, and done at every call of a function with a ``setup_context``.
    """
    if not is_eager():
        return function.apply(*args)
    # What a transform that is over has left behind stands for another tensor.
    unwrap = torch._C._functorch.unwrap_if_dead
    args = tuple(unwrap(arg) if isinstance(arg, Tensor) else arg for arg in args)
    return super(Function, function).apply(*args)  # type: ignore[misc]


def has_tangent(*tensors: Tensor) -> bool:
    """Whether any of these is a dual number of ``torch.autograd.forward_ad``."""
    for tensor in tensors:  # noqa: SIM110  # a generator would take as long as what it asks
        if unpack_dual(tensor).tangent is not None:
            return True
    return False


def is_array(tensor: Tensor) -> bool:
    """Whether a tensor has memory of its own that a kernel can read; mapped ones do not."""
    try:
        tensor.data_ptr()
    except (NotImplementedError, RuntimeError):
        return False
    return True
