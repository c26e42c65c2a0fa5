"""What is public stays as it is listed, until somebody writes down that it changes."""

from __future__ import annotations

import sys
import types

import pytest
from tools import public_names


def test_public_names_and_signatures_are_those_listed() -> None:
    listed = public_names.LIST.read_text()
    assert public_names.listing() == listed, (
        "the interface has changed: python -m tools.public_names, and a line in CHANGELOG.md"
    )


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(input, *, scale=1.0): ...", "f(input, *, scale=1.0)"),
        ("def f(input, /, scale: float = 2.0) -> int: ...", "f(input, /, scale=2.0)"),
        ("def f(input, how=object()): ...", "f(input, how=...)"),
    ],
)
def test_a_signature_is_listed_without_its_types(
    source: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("made_up")
    exec(source, vars(module))
    module.__all__ = ["f"]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "made_up", module)
    monkeypatch.setattr(public_names, "PACKAGES", ("made_up",))
    assert public_names.listing() == f"# made_up\n{line}\n"


def test_methods_and_properties_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Base(dict[str, int]):  # whose own methods are not ours
        def shrink(self) -> None: ...

    class Thing(Base):
        def __init__(self, size: int = 3) -> None: ...
        def grow(self, by: int) -> None: ...
        @property
        def size(self) -> int: ...  # type: ignore[empty-body]
        def _hidden(self) -> None: ...

    module = types.ModuleType("made_up")
    vars(module).update(__all__=["Thing"], Thing=Thing)
    monkeypatch.setitem(sys.modules, "made_up", module)
    monkeypatch.setattr(public_names, "PACKAGES", ("made_up",))
    assert public_names.listing().splitlines() == [
        "# made_up", "class Thing(size=3)", "    grow(self, by)", "    shrink(self)",
        "    size: property",
    ]  # fmt: skip
