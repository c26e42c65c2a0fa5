"""The public door of losses and metrics: what a call may hold, and what is said otherwise.

Legend: B sets, N outputs, M targets, F features; ``*`` any leading dimensions, flattened to B.

Shapes, types and devices are always checked; values where `values` says it is free.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from setwise import values
from setwise.features import Bernoulli, Features

Reduction = Literal["mean", "sum", "none"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_HALVES = (torch.float16, torch.bfloat16)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class Sets(NamedTuple):
    """The arguments of a checked call, flattened to B sets; logits and target are of one type.

    Elements that are not valid hold zeros, targets what is blank to their family, whatever the
    caller had there. A dimension of no elements has become one element that is not valid: nothing
    after this meets an empty dimension.
    """

    lead: torch.Size
    features: Features
    logits: Tensor  # [B, N, F]
    target: Tensor  # [B, M, F]
    output_valid: Tensor | None  # [B, N]; None if all are
    target_valid: Tensor | None  # [B, M]; None if all are
    weight: Tensor | None  # [B, M], in the type that is computed in

    # No property: torch.compile of PyTorch 2.8 does not see through those of a tuple.
    def compute_dtype(self) -> torch.dtype:
        """The type that is computed in: float32 for types of 16 bits."""
        return torch.float32 if self.logits.dtype in _HALVES else self.logits.dtype

    def widened(self) -> Sets:
        """The same in the type that is computed in."""
        dtype = self.compute_dtype()
        if self.logits.dtype == dtype:
            return self
        logits, target = self.logits.to(dtype), self.target.to(dtype)
        return self._replace(logits=logits, target=target)

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
    *,
    widen: bool = True,
) -> Sets:
    """Check everything that losses and metrics have in common.

    The sets are in the type that is computed in, or, unless to ``widen``, may be of 16 bits.
    """
    check_choice("reduction", reduction, REDUCTIONS)
    _check_elements("input", input)
    target = _expand_classes(features, input, target, target_valid)
    _check_elements("target", target)
    _check_pair(input, target)
    features = _check_features(features, input.shape[-1])
    output_valid = check_valid("input_valid", input_valid, input)
    valid = check_valid("target_valid", target_valid, target)
    _check_weight(weight, target)

    lead = input.shape[:-2]
    dtype = input.dtype
    if dtype != target.dtype:
        dtype = torch.promote_types(dtype, torch.promote_types(target.dtype, torch.float32))
    logits, output_valid = _flatten(input, dtype, lead, output_valid)
    x, valid = _flatten(target, dtype, lead, valid, features.blank)
    sets = Sets(lead, features, logits, x, output_valid, valid, None)
    if weight is not None:
        weight = _flatten(weight.unsqueeze(-1), sets.compute_dtype(), lead, valid)[0].squeeze(-1)
        sets = sets._replace(weight=weight)
    _check_values(sets)
    return sets.widened() if widen else sets


def _flatten(
    elements: Tensor,
    dtype: torch.dtype,
    lead: torch.Size,
    valid: Tensor | None,
    blank: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Elements [B, size, F] and their mask; those that are not valid are blank, or zeros."""
    if elements.dtype != dtype:
        elements = elements.to(dtype)
    if len(lead) != 1:  # a reshape that changes nothing would still cost a step in backward
        elements = elements.reshape(math.prod(lead), *elements.shape[-2:])
    B, size, width = elements.shape
    if size == 0:
        elements = torch.cat([elements, elements.new_zeros(B, 1, width)], dim=1)
        valid = torch.zeros(B, 1, dtype=torch.bool, device=elements.device)
    if valid is not None:
        valid_rows = valid.unsqueeze(-1)
        if blank is None:
            elements = elements.masked_fill(~valid_rows, 0.0)
        else:
            elements = torch.where(valid_rows, elements, blank.to(elements))
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


def check_number(name: str, given: object, low: float, high: float) -> float:
    # As a tuple: torch.compile of PyTorch 2.8 knows no union.
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(f"{name}: expected a number, got {type(given).__name__}")
    if not low <= given <= high:
        raise ValueError(f"{name}: must lie between {low:g} and {high:g}, got {given!r}")
    return float(given)


def check_presence(presence: Tensor | None, input: Tensor, sets: Sets) -> Tensor | None:
    """The logits of outputs' existence as [B, N]; 0 for those that are not valid."""
    if presence is None:
        return None
    _require_one_each("presence", presence, "input", input, "one logit per output")
    dtype = sets.compute_dtype()
    logits, _ = _flatten(presence.unsqueeze(-1), dtype, sets.lead, sets.output_valid)
    values.require_finite("presence", logits)
    return logits.squeeze(-1)


def _check_features(features: Features | None, width: int) -> Features:
    if features is None:
        # Compilers may know a width only as a symbol, which cannot be looked up.
        return Features(Bernoulli(width)) if torch.compiler.is_compiling() else _plain(width)
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


@lru_cache(maxsize=64)
def _plain(width: int) -> Features:
    return Features(Bernoulli(width))


def _expand_classes(
    features: Features | None, input: Tensor, target: Tensor, target_valid: Tensor | None
) -> Tensor:
    """Targets that are integers, the classes of choices [*, M, blocks] or [*, M], as one-hot."""
    if not isinstance(features, Features) or not isinstance(target, Tensor):
        return target
    if target.dtype not in _INTEGERS or not all(block.is_choice for block in features.blocks):
        return target
    require_dense("target", target)
    blocks = len(features.blocks)
    classes = target.unsqueeze(-1) if blocks == 1 and target.dim() == input.dim() - 1 else target
    if classes.dim() != input.dim() or classes.shape[-1] != blocks:
        raise ValueError(
            f"target: integers are read as classes, one for each of the {blocks} blocks: expected "
            f"shape {(*input.shape[:-2], 'M', blocks)}, got {tuple(target.shape)}; use "
            f"target.float() for one-hot targets"
        )
    # What a mask hides may hold anything, as -1 or -100 where there is no element.
    valid = check_valid("target_valid", target_valid, classes)
    shown = classes
    if valid is not None:
        shown = classes.masked_fill(~valid.reshape(classes.shape[:-1]).unsqueeze(-1), 0)
    for block, numbers in zip(features.blocks, shown.unbind(-1), strict=True):
        most = block.width - 1
        values.require("target", numbers, 0, most, f"classes must lie between 0 and {most}")
    return features.from_classes(classes).to(input.dtype)


def check_valid(name: str, valid: Tensor | None, elements: Tensor) -> Tensor | None:
    """A mask [B, size] from a mask [*, size] of booleans or from lengths [*] of integers."""
    if valid is None:
        return None
    lead, size = elements.shape[:-2], elements.shape[-2]
    if not isinstance(valid, Tensor):
        raise TypeError(
            f"{name}: expected a boolean mask or a tensor of lengths, got {type(valid).__name__}"
        )
    require_dense(name, valid)
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


def is_dtensor(tensor: object) -> bool:
    """Whether a tensor is spread over processes; not every PyTorch has the class to ask for."""
    return type(tensor) is not Tensor and getattr(tensor, "device_mesh", None) is not None


def require_dense(name: str, tensor: Tensor) -> None:
    """Refuse what has no plain array of numbers behind it: it would fail somewhere inside."""
    if is_dtensor(tensor):
        raise TypeError(
            f"{name}: expected a tensor of this process, got a DTensor; use {name}.full_tensor(), "
            f"or, in losses that take a group, spread input and all that goes with it"
        )
    if tensor.is_nested:
        raise TypeError(
            f"{name}: expected a dense tensor, got a nested one; use torch.nested.to_padded_tensor("
            f"{name}, 0), and tell the lengths by input_valid and target_valid"
        )
    if tensor.layout != torch.strided:
        raise TypeError(
            f"{name}: expected a dense tensor, got {tensor.layout}; use {name}.to_dense()"
        )


def _check_elements(name: str, elements: Tensor) -> None:
    if not isinstance(elements, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(elements).__name__}")
    require_dense(name, elements)
    if elements.dtype not in _FLOATS:
        raise TypeError(
            f"{name}: expected a floating-point tensor, got {elements.dtype}; use {name}.float()"
        )
    if elements.dim() < 2:
        raise ValueError(
            f"{name}: expected shape [*, elements, features], got {tuple(elements.shape)}"
        )
    if elements.shape[-1] == 0:
        raise ValueError(f"{name}: elements have no features, got shape {tuple(elements.shape)}")


def _check_pair(input: Tensor, target: Tensor) -> None:
    if input.device != target.device:
        raise ValueError(f"target: on {target.device}, but input is on {input.device}")
    if input.shape == target.shape:
        return
    problem = None
    if input.shape[-1] != target.shape[-1]:
        problem = "must have as many features (last dimension) as input"
    elif input.shape[:-2] != target.shape[:-2]:
        problem = (
            "leading dimensions must equal those of input (use expand(), nothing is broadcast)"
        )
    if problem:
        raise ValueError(
            f"target: {problem}: input {tuple(input.shape)}, target {tuple(target.shape)}"
        )


def _check_weight(weight: Tensor | None, target: Tensor) -> None:
    if weight is not None:
        _require_one_each("weight", weight, "target", target, "one number per target element")


def _require_one_each(name: str, given: Tensor, of: str, elements: Tensor, what: str) -> None:
    """Refuse what does not have one number for each of the elements [*, N, F], beside them."""
    if not isinstance(given, Tensor):
        raise TypeError(f"{name}: expected a torch.Tensor, got {type(given).__name__}")
    require_dense(name, given)
    if given.dtype not in _FLOATS:
        raise TypeError(f"{name}: expected a floating-point tensor, got {given.dtype}")
    if given.device != elements.device:
        raise ValueError(f"{name}: on {given.device}, but {of} is on {elements.device}")
    if given.shape != elements.shape[:-1]:
        raise ValueError(
            f"{name}: {what} is expected, shape {tuple(elements.shape[:-1])}, got "
            f"{tuple(given.shape)}"
        )


def _check_values(sets: Sets) -> None:
    if not values.are_readable(sets.logits):
        return
    sets = sets.widened()
    values.require_finite("input", sets.logits)
    sets.features.check_targets("target", sets.target)
    if sets.weight is not None:
        values.require("weight", sets.weight, 0.0, math.inf, "must be finite and not negative")
