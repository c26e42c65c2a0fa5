"""Output wherever it goes: terminals that know no Unicode, pipes that nobody reads, full disks."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


@contextmanager
def any_text_and_one_line_warnings() -> Iterator[None]:
    """Within, what a terminal cannot show is a question mark, and a warning is its text alone."""
    real = [stream for stream in _streams() if isinstance(stream, io.TextIOWrapper)]
    errors = [stream.errors for stream in real]
    shown = warnings.formatwarning
    for stream in real:
        stream.reconfigure(errors="replace")
    warnings.formatwarning = _text_alone
    try:
        yield
    finally:
        warnings.formatwarning = shown
        for stream, before in zip(real, errors, strict=True):
            with suppress(OSError, ValueError):  # it cannot be written to any more
                stream.reconfigure(errors=before)


def printable(text: str) -> str:
    """The text without what would command a terminal, as names of files may.

    >>> printable("file\\x1b[2J")
    'file\\\\x1b[2J'
    """
    shown = (
        letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text
    )
    return "".join(shown)


def flush() -> None:
    """Write what is still to be written, so that it fails here if it does."""
    for stream in _streams():
        stream.flush()


def silence() -> None:
    """Let what is left of the output go nowhere: Python would complain of it on its way out."""
    for stream in _streams():
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _streams() -> list[TextIO]:
    """Standard output and error, unless they were closed before the start."""
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None]


def _text_alone(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    return f"{printable(str(message))}\n"
