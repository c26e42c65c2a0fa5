"""Whether the values for a dataclass have the types of its fields, which Python does not ask."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def require_types(name: str, part: type[Any], values: dict[str, Any]) -> None:
    """Refuse values from JSON that are not what the fields of a dataclass are declared as.

    Fields of a type that JSON does not have are left to the class itself.

    >>> from setwise.experiments.networks import RuleLearner
    >>> require_types("network", RuleLearner, {"width": "400"})
    Traceback (most recent call last):
    ValueError: network: width: expected int, got '400'
    """
    try:
        hints = get_type_hints(part)
    except NameError:  # imported for a type checker alone, in a user's file
        return
    for field in fields(part):
        hint = hints[field.name]
        if field.name not in values:
            if field.default is MISSING and field.default_factory is MISSING:
                raise ValueError(f"{name}: {field.name} is missing")
        elif not _is(values[field.name], hint):
            expected = hint.__name__ if isinstance(hint, type) else str(hint)
            got = repr(values[field.name])
            got = got if len(got) <= 60 else f"{got[:60]}..."
            raise ValueError(f"{name}: {field.name}: expected {expected}, got {got}")


def _is(value: Any, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is float:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return (whole and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if hint in (str, bool, None, type(None)):
        return isinstance(value, hint or type(None))
    if origin is Literal:
        return isinstance(value, str | int) and value in arguments
    if origin in (Union, UnionType):
        return any(_is(value, one) for one in arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return isinstance(value, tuple) and all(_is(one, arguments[0]) for one in value)
    return True
