"""Files from outside: JSON and arrays, read in bounded memory or refused by name."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from setwise import outside
from setwise.outside import named, one_line, read_arrays, read_json


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not JSON: "),
        (b"[1]", "expected an object of JSON, got list"),
        (b"[" * 10**5, "not JSON: maximum recursion depth"),
        (b"\xff", "not JSON: 'utf-8' codec"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
    ],
)
def test_bad_json(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"^{path}: {said}"):
        read_json(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: expected a file, it is a pipe"):
        read_json(tmp_path / "pipe")
    with pytest.raises(ValueError, match="expected a file, it is a folder"):
        read_arrays(tmp_path, ["a"])


def test_a_file_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outside, "_MOST_JSON", 5)
    (tmp_path / "it").write_text('{"a": 1}')
    with pytest.raises(ValueError, match="at most 5 bytes of JSON"):
        read_json(tmp_path / "it")


def test_arrays_come_back(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.array("text"), "c": np.asfortranarray([[1]])}
    np.savez_compressed(tmp_path / "it.npz", **arrays)
    found = read_arrays(tmp_path / "it.npz", ["c", "a", "b"])
    assert list(found) == ["c", "a", "b"]
    for name, array in arrays.items():
        assert np.array_equal(found[name], array)
        assert found[name].flags.writeable


def member(kind: str, shape: str, content: bytes = b"") -> bytes:
    """An array as it says that it is."""
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


@pytest.mark.parametrize(
    ("kind", "shape", "content", "said"),
    [
        ("|u1", "(1000000000000,)", b"x", "the size in its header is not that of the array"),
        ("|V0", "(1000000000000,)", b"", "the size in its header is not that of the array"),
        ("<U0", "(1000000000000,)", b"", "the size in its header is not that of the array"),
        ("|u1", f"(0, {10**30})", b"", "not an array: "),
    ],
)
def test_an_array_that_lies_of_its_size_is_not_made_room_for(
    kind: str, shape: str, content: bytes, said: str, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "it.npz", "w") as archive:
        archive.writestr("a.npy", member(kind, shape, content))
    with pytest.raises(ValueError, match=rf"it\.npz: a: {said}"):
        read_arrays(tmp_path / "it.npz", ["a"])


def test_nothing_is_an_array_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "it.npz", a=np.zeros((0, 3)), b=np.zeros((0,), "V0"))
    found = read_arrays(tmp_path / "it.npz", ["a", "b"])
    assert [array.shape for array in found.values()] == [(0, 3), (0,)]


def test_a_member_that_is_no_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "it.npz", "w") as archive:
        archive.writestr("a", member("|u1", "(1,)", b"x"))
    with pytest.raises(ValueError, match=r"it\.npz: it has no a$"):
        read_arrays(tmp_path / "it.npz", ["a"])


@pytest.mark.parametrize("how", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_an_archive_that_numpy_did_not_write(how: int, tmp_path: Path) -> None:
    """What is damaged in it would raise errors of its own kind."""
    with zipfile.ZipFile(tmp_path / "it.npz", "w", how) as archive:
        archive.writestr("a.npy", member("|u1", "(100,)", bytes(100)))
    with pytest.raises(ValueError, match=r"it\.npz: a: compressed in another way than NumPy does$"):
        read_arrays(tmp_path / "it.npz", ["a"])


def test_an_archive_that_expands_without_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside, "_MOST_ARRAYS", 2**16)
    np.savez_compressed(tmp_path / "it.npz", a=np.zeros(2**20, np.uint8))
    with pytest.raises(ValueError, match=r"its arrays would take 10487.. bytes, more than the"):
        read_arrays(tmp_path / "it.npz", ["a"])


def test_python_objects_are_never_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "it.npz", a=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="a: holds Python objects, which are never read"):
        read_arrays(tmp_path / "it.npz", ["a"])


def test_errors_are_named_once_and_short(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^it: lost$"), named(Path("it"), OSError):
        raise OSError("lost")
    with pytest.raises(ValueError, match=r"^it: lost$"), named(Path("it")):
        raise ValueError("it: lost")
    assert len(one_line(ValueError("x" * 10**6))) < 2000
