"""Files appear whole: a reader sees what was there before, or all of what is new."""

from __future__ import annotations

from pathlib import Path

import pytest

from setwise.files import atomic_write, atomic_write_text


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "new" / "newer" / "x.txt"
    for text in ("Größe\n", "other\n"):
        atomic_write_text(path, text)
        assert path.read_bytes() == text.encode()
        assert [other.name for other in path.parent.iterdir()] == ["x.txt"]


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("before")
    with atomic_write(path) as unfinished:
        unfinished.write_text("af")
        assert path.read_text() == "before"
        unfinished.write_text("after")
    assert path.read_text() == "after"


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_after_an_error_all_is_as_before(error: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("before")

    def fail() -> None:
        with atomic_write(path) as unfinished:
            unfinished.write_text("af")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]
