"""Weights of a file for a network that is still to be built: nothing is built that they do not fit.

How large a network is, its file says, which may be anybody's. So the network is built on PyTorch's
meta device first, where tensors have shapes and take no memory, and no further than to the first
parameter that the file has no room for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from setwise.experiments import checkpoint
from setwise.outside import named

# What building raises of sizes that cannot be, besides a ValueError.
_UNBUILDABLE = (TypeError, RuntimeError, OverflowError, AttributeError)


def load_weights(path: Path, build: Callable[[], nn.Module]) -> nn.Module:
    """The network that ``build`` gives, with the weights of a file and in evaluation mode."""
    tensors, _ = checkpoint.read(path)
    with named(path, *_UNBUILDABLE):
        try:
            with _no_larger_than(tensors), torch.device("meta"):
                _require_same(tensors, build())
        except _UNBUILDABLE:
            pass  # a size that cannot be, which is told below; or a network that looks at values
        with _no_larger_than(tensors):
            network = build()
        _require_same(tensors, network)
        network.load_state_dict(tensors)
    return network.eval()


def _require_same(found: Mapping[str, Tensor], network: nn.Module) -> None:
    wanted = network.state_dict()
    for name in sorted(found.keys() | wanted.keys()):
        if (there := _form(found.get(name))) != (needed := _form(wanted.get(name))):
            raise ValueError(
                f"not the weights of its network: {name} is {there}, expected {needed}"
            )


def _form(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {list(tensor.shape)}"


@contextmanager
def _no_larger_than(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Within, this thread builds no network much larger than these are together.

    A network that fits may make some parameters in vain, or know one by two names.
    """
    parameters = 2 * len(tensors) + 16
    numbers = 2 * sum(tensor.numel() for tensor in tensors.values()) + 2**20
    thread = threading.get_ident()

    def register(module: nn.Module, name: str, parameter: Tensor | None) -> None:
        nonlocal parameters, numbers
        if parameter is None or threading.get_ident() != thread:
            return
        parameters, numbers = parameters - 1, numbers - parameter.numel()
        if parameters < 0 or numbers < 0:
            raise ValueError("its network would have more weights than are in the file")

    hook = register_module_parameter_registration_hook(register)
    try:
        yield
    finally:
        hook.remove()
