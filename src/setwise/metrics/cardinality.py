"""Cardinality error: how far the number of outputs is from the number of targets."""

from __future__ import annotations

import torch
from torch import Tensor

from setwise.arguments import REDUCTIONS, Reduction, check_choice, reduce_sets, require_dense


def cardinality_error(
    input_valid: Tensor, target_valid: Tensor, *, reduction: Reduction = "mean"
) -> Tensor:
    """Absolute difference between the number of outputs and of targets in each set.

    ``input_valid`` [*, N] and ``target_valid`` [*, M] are boolean and True at real elements. With
    the dummies of `pad_sets`, an output is real where its discretised last feature, the flag, is 0.

    >>> import torch
    >>> cardinality_error(torch.tensor([[True, True, False]]), torch.tensor([[True, True, True]]))
    tensor(1.)
    """
    check_choice("reduction", reduction, REDUCTIONS)
    for name, valid in (("input_valid", input_valid), ("target_valid", target_valid)):
        if not isinstance(valid, Tensor):
            raise TypeError(f"{name}: expected a boolean tensor, got {type(valid).__name__}")
        require_dense(name, valid)
        if valid.dtype != torch.bool:
            raise TypeError(f"{name}: expected a boolean tensor, got {valid.dtype}")
        if valid.dim() < 1:
            raise ValueError(f"{name}: expected shape [*, elements], got a single number")
    if input_valid.shape[:-1] != target_valid.shape[:-1]:
        raise ValueError(
            f"target_valid: leading dimensions must equal those of input_valid: "
            f"{tuple(input_valid.shape)} and {tuple(target_valid.shape)}"
        )
    if input_valid.device != target_valid.device:
        raise ValueError(
            f"target_valid: on {target_valid.device}, but input_valid is on {input_valid.device}"
        )
    difference = (input_valid.sum(dim=-1) - target_valid.sum(dim=-1)).abs().float()
    return reduce_sets(difference, difference.shape, reduction)
