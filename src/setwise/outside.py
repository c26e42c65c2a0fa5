"""Files from outside: whatever they hold, reading one ends, in bounded memory.

What is wrong with a file is a ``ValueError`` in one line that begins with its name. Nothing that is
read here is ever executed.
"""

from __future__ import annotations

import json
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from setwise.files import require_regular

_MOST_JSON = 2**26  # bytes of a JSON file
# An archive may hold so much, or so many times its own size: pictures compress to a third or so,
# and a file made to fill the memory to a thousandth.
_MOST_ARRAYS, _MOST_EXPANSION = 2**26, 50


@contextmanager
def named(path: Path, *also: type[Exception]) -> Iterator[None]:
    """Within, a ``ValueError``, or one of the errors ``also``, becomes one that names the file.

    >>> with named(Path("network")):
    ...     raise ValueError("damaged")
    Traceback (most recent call last):
    ValueError: network: damaged
    """
    errors: tuple[type[Exception], ...] = (ValueError, *also)
    try:
        yield
    except errors as error:
        said = one_line(error)
        said = said if said.startswith(f"{path}:") else f"{path}: {said}"
        raise ValueError(said) from error


def one_line(error: BaseException) -> str:
    """What an error says, without its name, on one line, printable and not without end.

    >>> one_line(ValueError("no\\n  good\\x1b"))
    'no good?'
    """
    said = " ".join(str(error).split()) or type(error).__name__
    said = "".join(letter if letter.isprintable() else "?" for letter in said)
    return said if len(said) <= 1000 else f"{said[:1000]}..."


def read_json(path: Path, most: int | None = None) -> dict[str, Any]:
    """The object in a JSON file, of at most so many bytes if it may be larger than others."""
    most = _MOST_JSON if most is None else most
    require_regular(path)
    if path.stat().st_size > most:
        raise ValueError(f"{path}: expected at most {most} bytes of JSON")
    with named(path):
        return parse_json(path.read_bytes())


def parse_json(text: str | bytes) -> dict[str, Any]:
    """The object that a JSON text is.

    >>> parse_json("[1, 2]")
    Traceback (most recent call last):
    ValueError: expected an object of JSON, got list
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected an object of JSON, got {type(found).__name__}")
    return found


def read_arrays(
    path: Path, names: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, NDArray[Any]]:
    """Arrays of a NumPy archive, of which only the ``optional`` ones may be missing.

    None may hold Python objects, and their sizes are looked at before they are read.
    """
    require_regular(path)
    damage = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)
    with named(path, *damage), path.open("rb") as opened:
        if not zipfile.is_zipfile(opened):
            raise ValueError("damaged, or no archive at all (.npz)")
        with zipfile.ZipFile(opened) as archive:
            members = [name for name in archive.namelist() if name.endswith(".npy")]
            there = {name.removesuffix(".npy") for name in members}
            if missing := set(names) - there:
                raise ValueError(f"it has no {', '.join(sorted(missing))}")
            wanted = [*names, *(name for name in optional if name in there)]
            infos = {name: archive.getinfo(f"{name}.npy") for name in wanted}
            most = max(_MOST_ARRAYS, _MOST_EXPANSION * path.stat().st_size)
            if (total := sum(info.file_size for info in infos.values())) > most:
                raise ValueError(
                    f"its arrays would take {total} bytes, more than the {most} allowed"
                )
            return {name: _read_array(name, archive, info) for name, info in infos.items()}


def _read_array(name: str, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """NumPy takes the shape in a header for granted, and memory for it; so it is compared first."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name}: compressed in another way than NumPy does")
    with archive.open(member) as file:
        try:
            if np.lib.format.read_magic(file) == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            else:
                shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        except (ValueError, SyntaxError, TypeError, RecursionError) as error:
            raise ValueError(f"{name}: not an array: {one_line(error)}") from error
        if dtype.hasobject:
            raise ValueError(f"{name}: holds Python objects, which are never read")
        elements, size = math.prod(shape), member.file_size - file.tell()
        if elements * dtype.itemsize != size or (elements and not dtype.itemsize):
            raise ValueError(f"{name}: the size in its header is not that of the array")
        file.seek(0)
        try:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except OverflowError as error:  # nothing, in so many rows
            raise ValueError(f"{name}: not an array: {one_line(error)}") from error
        return array
