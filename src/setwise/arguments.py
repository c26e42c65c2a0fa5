"""The public door of losses and metrics: what a call may hold, and what is said otherwise.

Legend: B sets, N outputs, M targets, F features; ``*`` any leading dimensions, flattened to B.

Shapes, types and devices are always checked; values where `values` says it is free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from setwise import values
from setwise.features import Bernoulli, Features

Reduction = Literal["mean", "sum", "none"]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True)
class Sets:
    """The arguments of a checked call, flattened to B sets, in one floating-point type.

    Elements that are not valid hold zeros, whatever the caller had there. A dimension of no
    elements has become one element that is not valid: nothing after this meets an empty dimension.
    """

    lead: torch.Size
    features: Features
    logits: Tensor  # [B, N, F]
    target: Tensor  # [B, M, F]
    output_valid: Tensor | None  # [B, N]; None if all are
    target_valid: Tensor | None  # [B, M]; None if all are
    weight: Tensor | None  # [B, M]
    half: torch.dtype | None  # the 16-bit type that logits and target came in, if both did

    def as_given(self) -> tuple[Tensor, Tensor]:
        """Target and logits in the type they came in, for kernels that read it as it is."""
        if self.half is None:
            return self.target, self.logits
        return self.target.to(self.half), self.logits.to(self.half)

    def masks(self) -> tuple[Tensor, Tensor]:
        """Validity of targets [B, M] and outputs [B, N], written out where all are valid."""
        B, M, _ = self.target.shape
        N = self.logits.shape[1]
        everything = torch.ones(B, max(M, N), dtype=torch.bool, device=self.target.device)
        targets = everything[:, :M] if self.target_valid is None else self.target_valid
        outputs = everything[:, :N] if self.output_valid is None else self.output_valid
        return targets, outputs


def check_call(
    input: Tensor,
    target: Tensor,
    features: Features | None,
    input_valid: Tensor | None,
    target_valid: Tensor | None,
    weight: Tensor | None,
    reduction: str,
) -> Sets:
    """Check everything that losses and metrics have in common."""
    check_choice("reduction", reduction, get_args(Reduction))
    _check_elements("input", input)
    _check_elements("target", target)
    _check_pair(input, target)
    features = _check_features(features, input.shape[-1])
    output_valid = _check_valid("input_valid", input_valid, input)
    valid = _check_valid("target_valid", target_valid, target)
    _check_weight(weight, target)

    lead = input.shape[:-2]
    compute = torch.promote_types(input.dtype, torch.promote_types(target.dtype, torch.float32))
    logits, output_valid = _flatten(input.to(compute), lead, output_valid)
    x, valid = _flatten(target.to(compute), lead, valid)
    if weight is not None:
        weight = _flatten(weight.to(compute).unsqueeze(-1), lead, valid)[0].squeeze(-1)
    _check_values(logits, x, weight, features)
    both_half = input.dtype == target.dtype and input.dtype in _HALVES
    half = input.dtype if both_half else None
    return Sets(lead, features, logits, x, output_valid, valid, weight, half)


def _flatten(
    elements: Tensor, lead: torch.Size, valid: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    B, (size, width) = math.prod(lead), elements.shape[-2:]
    if len(lead) != 1:  # a reshape that changes nothing would still cost a step in backward
        elements = elements.reshape(B, size, width)
    if size == 0:
        elements = torch.cat([elements, elements.new_zeros(B, 1, width)], dim=1)
        valid = torch.zeros(B, 1, dtype=torch.bool, device=elements.device)
    if valid is not None:
        elements = elements.masked_fill(~valid.unsqueeze(-1), 0.0)
    return elements, valid


def reduce_sets(per_set: Tensor, lead: torch.Size, reduction: str) -> Tensor:
    """``"mean"`` or ``"sum"`` over the sets [B], or ``"none"``: one number each, shape ``lead``."""
    if reduction == "mean":
        return per_set.mean()
    if reduction == "sum":
        return per_set.sum()
    return per_set.reshape(lead)


def check_choice(name: str, given: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(given, str) or given not in allowed:
        raise ValueError(f"{name}: expected one of {', '.join(map(repr, allowed))}, got {given!r}")


def check_flag(name: str, given: object) -> None:
    if not isinstance(given, bool):
        raise TypeError(f"{name}: expected True or False, got {given!r}")


def _check_features(features: Features | None, width: int) -> Features:
    if features is None:
        return Features(Bernoulli(width))
    if not isinstance(features, Features):
        raise TypeError(
            f"features: expected Features(...) or None, got {type(features).__name__}; "
            f"wrap blocks as in Features(Bernoulli(4), Categorical(3))"
        )
    if features.width != width:
        raise ValueError(
            f"features: {features} describes {features.width} features, but the last dimension of "
            f"input and target holds {width}"
        )
    return features


def _check_valid(name: str, valid: Tensor | None, elements: Tensor) -> Tensor | None:
    """A mask [B, size] from a mask [*, size] of booleans or from lengths [*] of integers."""
    if valid is None:
        return None
    lead, size = elements.shape[:-2], elements.shape[-2]
    if not isinstance(valid, Tensor):
        raise TypeError(
            f"{name}: expected a boolean mask or a tensor of lengths, got {type(valid).__name__}"
        )
    if valid.device != elements.device:
        raise ValueError(f"{name}: on {valid.device}, but the elements are on {elements.device}")
    if valid.dtype == torch.bool:
        if valid.shape != (*lead, size):
            raise ValueError(
                f"{name}: a boolean mask here must have shape {(*lead, size)}, "
                f"got {tuple(valid.shape)}"
            )
        return valid.reshape(math.prod(lead), size)
    if valid.dtype not in _INTEGERS:
        raise TypeError(
            f"{name}: expected a boolean mask (True = a real element) or integer lengths, "
            f"got {valid.dtype}; use mask.bool()"
        )
    if valid.shape != lead:
        raise ValueError(
            f"{name}: integers are read as lengths and must have shape {tuple(lead)}, got "
            f"{tuple(valid.shape)}; if this is a mask, pass it as mask.bool()"
        )
    values.require(name, valid, 0, size, f"lengths must lie between 0 and {size}")
    return torch.arange(size, device=valid.device) < valid.reshape(math.prod(lead), 1)


def _check_elements(name: str, elements: Tensor) -> None:
    if not isinstance(elements, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(elements).__name__}")
    if elements.dtype not in _FLOATS:
        raise TypeError(
            f"{name}: expected a floating-point tensor, got {elements.dtype}; use {name}.float()"
        )
    if elements.layout != torch.strided:
        raise TypeError(f"{name}: expected a dense tensor, got {elements.layout}; use to_dense()")
    if elements.dim() < 2:
        raise ValueError(
            f"{name}: expected shape [*, elements, features], got {tuple(elements.shape)}"
        )
    if elements.shape[-1] == 0:
        raise ValueError(f"{name}: elements have no features, got shape {tuple(elements.shape)}")


def _check_pair(input: Tensor, target: Tensor) -> None:
    shapes = f"input {tuple(input.shape)}, target {tuple(target.shape)}"
    if input.device != target.device:
        raise ValueError(f"target: on {target.device}, but input is on {input.device}")
    if input.shape[-1] != target.shape[-1]:
        raise ValueError(f"target: must have as many features (last dimension) as input: {shapes}")
    if input.shape[:-2] != target.shape[:-2]:
        raise ValueError(
            f"target: leading dimensions must equal those of input, nothing is broadcast: "
            f"{shapes}; use expand()"
        )


def _check_weight(weight: Tensor | None, target: Tensor) -> None:
    if weight is None:
        return
    if not isinstance(weight, Tensor):
        raise TypeError(f"weight: expected a torch.Tensor, got {type(weight).__name__}")
    if weight.dtype not in _FLOATS:
        raise TypeError(f"weight: expected a floating-point tensor, got {weight.dtype}")
    if weight.device != target.device:
        raise ValueError(f"weight: on {weight.device}, but target is on {target.device}")
    if weight.shape != target.shape[:-1]:
        raise ValueError(
            f"weight: one number per target element is expected, shape "
            f"{tuple(target.shape[:-1])}, got {tuple(weight.shape)}"
        )


def _check_values(logits: Tensor, x: Tensor, weight: Tensor | None, features: Features) -> None:
    values.require_finite("input", logits)
    for block, part in zip(features.blocks, features.split(x), strict=True):
        if block.targets_are_probabilities:
            what = f"{type(block).__name__} features must be probabilities in [0, 1]"
            values.require("target", part, 0.0, 1.0, what)
        else:
            values.require_finite("target", part)
    if weight is not None:
        values.require("weight", weight, 0.0, math.inf, "must be finite and not negative")
