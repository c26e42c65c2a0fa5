"""Things that are found by name: losses, tasks, networks, worlds, experiments.

A user's own entry is as good as ours: it is made in a file of theirs, by the same call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class UnknownNameError(KeyError, ValueError):
    """A name that nobody has defined: no key of a mapping, and no value that a setting may have."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would put it in quotes


class Registry(Mapping[str, T]):
    """A mapping from names to entries, in the order in which they were added.

    An unknown name is an `UnknownNameError` that lists the known ones.

    >>> colours = Registry[int]("colour")
    >>> colours.add("red", 0xFF0000)
    >>> colours["green"]
    Traceback (most recent call last):
    setwise.registry.UnknownNameError: colour: unknown 'green'; known: red
    >>> colours.get("green", 0)
    0
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Add an entry; a name that is taken is refused, unless by the same definition reloaded."""
        if not isinstance(name, str) or not name:
            raise TypeError(f"{self._what}: expected a name, got {name!r}")
        known = self._entries.get(name)
        if known is not None and not _same_definition(known, entry):
            raise ValueError(f"{self._what}: {name!r} is taken, by {_origin(known)}")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            known = ", ".join(self._entries) or "none"
            raise UnknownNameError(f"{self._what}: unknown {name!r}; known: {known}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def _same_definition(known: object, entry: object) -> bool:
    """Whether an entry is the known one, or it again: a file that is run twice defines both."""
    return known == entry or (_is_defined(entry) and _origin(known) == _origin(entry))


def _is_defined(entry: object) -> bool:
    """By a ``class`` or ``def`` of its own, or as the entry of such a function."""
    return hasattr(getattr(entry, "function", entry), "__qualname__")


def _origin(entry: object) -> str:
    """Where an entry is defined."""
    named = getattr(entry, "function", entry)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"
