"""Write down what is public: every name that a package of setwise exports, with its signature.

    python -m tools.public_names

writes ``tests/documents/public_names.txt``. A change to that file is a change of the interface: it
belongs into CHANGELOG.md, and docs/releasing.md says what may change when.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from setwise.files import atomic_write_text

ROOT = Path(__file__).parent.parent
LIST = ROOT / "tests" / "documents" / "public_names.txt"
# The rooms that users import from; the others are the application's own.
PACKAGES = (
    "setwise",
    "setwise.data",
    "setwise.executors",
    "setwise.experiments",
    "setwise.features",
    "setwise.losses",
    "setwise.metrics",
    "setwise.models",
    "setwise.planning",
    "setwise.render",
    "setwise.worlds",
)


def listing() -> str:
    """All packages in turn, a line for each name in the order of the alphabet."""
    seen: dict[int, str] = {}
    return "\n".join(line for package in PACKAGES for line in _lines(package, seen))


def _lines(package: str, seen: dict[int, str]) -> Iterator[str]:
    module = importlib.import_module(package)
    yield f"# {package}"
    # Classes that load what they need when asked for are only listed by dir().
    for name in sorted({*module.__all__, *_lazy(module)}):
        value = getattr(module, name)
        if id(value) in seen:  # exported by two packages, described once
            yield f"{name}: {seen[id(value)]}"
        else:
            seen[id(value)] = f"{package}.{name}"
            yield from _described(name, value)
    yield ""


def _lazy(module: ModuleType) -> set[str]:
    return set(dir(module)) if "__dir__" in vars(module) else set()


def _described(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        yield f"{name}: module"
    elif inspect.isclass(value):
        yield f"class {name}{_signature(value)}"
        # What is inherited of ours is public as well, wherever it is written.
        bases = [base for base in reversed(value.__mro__) if _package(base) == _package(value)]
        members = {name: member for base in bases for name, member in vars(base).items()}
        for attribute, member in sorted(members.items()):
            if not attribute.startswith("_"):
                yield from _member(attribute, member)
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _member(name: str, member: Any) -> Iterator[str]:
    if isinstance(member, staticmethod | classmethod):
        yield f"    {name}{_signature(member.__func__)}"
    elif inspect.isfunction(member):
        yield f"    {name}{_signature(member)}"
    elif isinstance(member, property):
        yield f"    {name}: property"


def _signature(value: Any) -> str:
    """Names, kinds and defaults; types are for the type checker."""
    try:
        signature = inspect.signature(value)
    except ValueError:  # made in C
        return "(...)"
    parameters = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=_default(parameter.default),
        )
        for parameter in signature.parameters.values()
    ]
    plain = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return str(plain)


class _Shown:
    """A default as it is listed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(value: Any) -> Any:
    """Plain values are shown; of others only that there is one, for addresses differ."""
    if value is inspect.Parameter.empty:
        return value
    if value is None or isinstance(value, bool | int | float | str | enum.Enum):
        return value
    if isinstance(value, tuple) and all(isinstance(one, bool | int | float | str) for one in value):
        return value
    return _Shown("...")


if __name__ == "__main__":
    atomic_write_text(LIST, listing())
