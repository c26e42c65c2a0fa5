"""Files that are whole or not there: written beside their place, and then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Gives a name beside a path to write to; what is there at the end takes the path's place.

    The folder is made if it is missing. After an error nothing has changed. The given name does
    not end as the path does, so a writer that goes by endings has to be told the format.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def atomic_write_text(path: Path, text: str) -> None:
    """Write UTF-8 in one step, into a folder that is made if it is missing."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
