"""A loss and all of its gradients, as tests on a real device compare them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import setwise as sw


def loss_and_both_gradients(z: Tensor, x: Tensor, **options: Any) -> list[Tensor]:
    value = sw.set_cross_entropy(z, x, **options)
    return [value.detach(), *torch.autograd.grad(value, (z, x))]
