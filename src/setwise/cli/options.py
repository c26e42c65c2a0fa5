"""Options of commands: what they may hold, and what is said where they hold something else."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from setwise.cli.errors import CommandError
from setwise.cli.streams import printable
from setwise.files import FILE, kind_of

SEEDS = 2**63


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, with the command whose help tells more."""

    def error(self, message: str) -> NoReturn:
        line = " ".join(printable(message).split("\n"))
        self.exit(2, f"{self.prog}: error: {line}; see {self.prog} --help\n")

    def parse_known_args(  # type: ignore[override]  # overloads of what is one function
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Left to itself, only the outermost parser would complain, and name the wrong help."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unknown: {' '.join(unknown)}")
        return found, unknown


def whole(text: str) -> int:
    """A whole number, not negative.

    >>> whole("7")
    7
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number such as 0 or 7, got {text!r}")
    return int(text)


def positive_whole(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number such as 1 or 7, got {text!r}")
    return int(text)


def seed(text: str) -> int:
    """A whole number that PyTorch takes for a seed and for an element of a tensor.

    >>> seed("7")
    7
    """
    number = whole(text)
    if number >= SEEDS:
        raise argparse.ArgumentTypeError(f"expected a seed below 2**63, got {text}")
    return number


def positive(text: str) -> float:
    """A finite number above zero.

    >>> positive("0.5")
    0.5
    """
    if (number := _finite(text)) > 0:
        return number
    raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")


def share(text: str) -> float:
    """A number above zero, at most 1.

    >>> share("0.25")
    0.25
    """
    if 0 < (number := _finite(text)) <= 1:
        return number
    raise argparse.ArgumentTypeError(f"expected a share from above 0 to 1, got {text!r}")


def not_negative(text: str) -> float:
    """A finite number, zero or above."""
    if (number := _finite(text)) >= 0:
        return number
    raise argparse.ArgumentTypeError(f"expected a number, 0 or above, got {text!r}")


def _finite(text: str) -> float:
    """The number, or one that is in no range."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def require_file(option: str, path: Path) -> None:
    """Something to read must be there, and be a file."""
    kind = kind_of(path) if path.exists() else "not there"
    if kind != FILE:  # a pipe would be waited for, perhaps forever
        raise CommandError(f"{option}: expected a file, {path} is {kind}")


def require_folder(option: str, path: Path) -> None:
    """A folder to write to must be there or be possible, which is better known before the work."""
    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not there.is_dir():
        raise CommandError(f"{option}: expected a folder, {there} is a file")
    if not os.access(there, os.W_OK):
        raise CommandError(f"{option}: {there} is not writable; choose another folder")


def require_place(option: str, path: Path) -> None:
    """A file to write must be possible, and replace nothing else; see `require_folder`."""
    if path.exists() and (kind := kind_of(path)) != FILE:
        raise CommandError(f"{option}: expected the name of a file, {path} is {kind}")
    require_folder(option, path.parent)


def device_named(name: str) -> str:
    """``cpu`` or ``cuda``; ``auto`` takes a GPU if there is one."""
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise CommandError("--device: PyTorch finds no CUDA device here; take cpu or auto")
    return name if name != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
