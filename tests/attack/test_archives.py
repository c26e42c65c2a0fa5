"""Archives of pictures from anywhere: read, or refused in one line that names the file."""

from __future__ import annotations

import io
import random
import struct
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hostile import flipped, shortened
from limits import failures, within_limits
from setwise.data.blocksworld_archive import BlocksworldArchive
from setwise.experiments.reconstructions import Reconstructions
from tiny_experiments import puzzle_config

# Slow: a child process and 320 files. tests/data/test_blocksworld.py has some of each kind.
pytestmark = pytest.mark.slow
CASES = 320
MEMBERS = ("images", "bboxes", "picsize", "transitions")


@cache
def originals() -> list[dict[str, Any]]:
    """The arrays of both kinds of archives."""
    rng = np.random.default_rng(0)
    boxes = np.tile(np.array([1, 2, 9, 12], np.uint16), (3, 2, 1))
    archive = {
        "images": rng.integers(0, 256, (3, 2, 32, 32, 3), np.uint8),
        "bboxes": boxes,
        "picsize": np.array([20, 30]),
        "transitions": np.array([0, 1, 1, 2], np.uint32),
    }
    path = Path(tempfile.mkdtemp()) / "reconstructions.npz"
    pictures = rng.integers(0, 256, (2, 4, 5, 3), np.uint8)
    found = Reconstructions((puzzle_config(),), (0, 3), pictures, pictures[None], {}, "now")
    found.write(path)
    with np.load(path) as file:
        return [archive, dict(file)]


def damaged(seed: int) -> tuple[bool, bytes]:
    """Which of the two kinds it is, and the file."""
    rng = random.Random(seed)
    which, how = seed % 2, seed // 2 % 10
    arrays = dict(originals()[which])
    name = rng.choice(sorted(arrays))
    if how == 0:
        return bool(which), shortened(packed(arrays), rng)
    if how in (1, 2):
        return bool(which), flipped(packed(arrays), rng)
    if how == 3:
        del arrays[name]
    elif how == 4:
        kinds = ["float32", "complex128", "U3", "bool", "datetime64[s]", "int8", ">u8", "V7"]
        arrays[name] = np.zeros(arrays[name].shape, np.dtype(rng.choice(kinds)))
    elif how == 5:
        shapes = [(), (0,), (1,), (3,), (2, 2), (1, 1, 1, 1, 1, 1), (0, 5, 32, 32, 3)]
        arrays[name] = np.zeros(rng.choice(shapes), arrays[name].dtype)
    elif how == 6:  # in range for the type, out of it for the meaning
        most = rng.choice([-1, 0, 2**15, 2**16, 2**31, 2**63 - 1])
        arrays[name] = np.full(arrays[name].shape, most, np.int64)
    elif how == 7:
        arrays[name] = np.array([{"a": print}], dtype=object)
    else:
        return bool(which), packed(
            arrays, name, lying_header(rng, bomb=seed < 20)
        )  # few: slow to make
    return bool(which), packed(arrays)


def packed(arrays: dict[str, Any], other: str = "", content: bytes = b"") -> bytes:
    """The archive, in which one member may be anything."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.save(member, array, allow_pickle=True)
            archive.writestr(f"{name}.npy", content if name == other else member.getvalue())
    return file.getvalue()


def lying_header(rng: random.Random, *, bomb: bool) -> bytes:
    """An array that says it is of a terabyte, or expands to many times its size."""
    shape = rng.choice(
        [
            "(10**12,)",
            f"({10**12},)",
            f"({2**62}, {2**62})",
            "(-1,)",
            "'x'",
            "(2.5,)",
            f"(0, {10**30})",
        ]
    )
    if bomb:
        shape = f"({2**27},)"
    descr = rng.choice(
        ["'|u1'", "'|O'", "'<f8'", "[('a', '<i4')]", "'|V0'", "'<U0'", "'" + "x" * 99 + "'"]
    )
    descr = "'|u1'" if bomb else descr
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    version = rng.choice([(1, 0), (2, 0), (3, 0), (9, 9)])
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text + bytes(2**27 if bomb else 64)


def attempt(case: int) -> str:
    path = Path(tempfile.mkdtemp()) / "archive.npz"
    reconstructions, content = damaged(case)
    path.write_bytes(content)
    said = ""
    try:
        (Reconstructions if reconstructions else BlocksworldArchive).read(path)
    except ValueError as error:
        said = str(error)
    path.unlink()
    assert said == "" or said.startswith(f"{path}: "), said
    assert "\n" not in said
    return said


def test_every_archive_is_read_or_refused_in_one_line() -> None:
    found = within_limits(attempt, range(CASES), seconds=60, megabytes=700)
    assert not failures(found)
    assert CASES // 2 < sum(1 for one in found if one.value) < CASES
