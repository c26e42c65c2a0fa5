"""Files appear whole: a reader sees what was there before, or all of what is new."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from setwise import files
from setwise.files import (
    SCRATCH,
    alone,
    atomic_write,
    atomic_write_text,
    file_in,
    locked,
    require_regular,
    scratch_folder,
)


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


def a_device(path: Path) -> None:
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (a_device, "a device"),
        (os.mkfifo, "a pipe"),
        (Path.mkdir, "a folder"),
        (lambda path: path.symlink_to("/dev/null"), "a device"),
    ],
)
def test_what_is_no_file_is_not_replaced(
    make: Callable[[Path], None], kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    make(path)
    before = path.lstat()
    with pytest.raises(OSError, match=f"/x: expected the name of a file, it is {kind}$"):
        atomic_write_text(path, "new")
    assert os.path.samestat(path.lstat(), before)
    assert list(tmp_path.iterdir()) == [path]


def test_devices_have_a_folder_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the standard output is a link, to a file once it is redirected."""
    (tmp_path / "redirected").touch()
    devices = tmp_path / "dev"
    devices.mkdir()
    (devices / "stdout").symlink_to(tmp_path / "redirected")
    monkeypatch.setattr(files, "_DEVICES", os.path.realpath(devices))
    with pytest.raises(OSError, match=r"stdout: expected the name of a file, not in /.*dev$"):
        atomic_write_text(devices / "stdout", "new")
    assert (devices / "stdout").is_symlink()


@pytest.mark.parametrize("folder", [False, True])
def test_where_nothing_can_be_made(folder: bool) -> None:
    """Not even by root, and the reason given there is that the folder is missing."""
    with (
        pytest.raises(OSError, match=r"'/proc/foo'$"),
        files.unfinished(Path("/proc/foo"), folder=folder),
    ):
        pass


# File systems without locks


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_without_locks_files_are_written_and_nothing_is_taken_for_abandoned(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(handle: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    path = tmp_path / "x"
    left = left_by_a_killed_writer(path)
    atomic_write_text(path, "new")
    assert sorted(tmp_path.iterdir()) == sorted([path, left])
    for holding in (alone(tmp_path / ".lock", "testing"), locked(path)):
        with pytest.raises(OSError, match="has no locks; choose a folder on another"), holding:
            pass
    assert path.read_text() == "new"


def test_what_is_locked_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS refuses to lock other files, and folders, with EBADF."""
    lock = fcntl.flock

    def like_nfs(handle: int, how: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", like_nfs)
    path = tmp_path / "x"
    left_by_a_killed_writer(path)
    atomic_write_text(path, "new")
    with scratch_folder(tmp_path) as first, scratch_folder(tmp_path) as second:
        assert set(tmp_path.iterdir()) == {path, first, second}
    assert list(tmp_path.iterdir()) == [path]


# Names beside the place


def left_by_a_killed_writer(path: Path, *, folder: bool = False) -> Path:
    """What is there once the process is gone that was writing it: no lock is left on it."""
    place = path.with_name(f".{path.name}.0123456789abcdef.unfinished")
    if folder:
        place.mkdir()
        (place / "large").write_text("half")
    else:
        place.write_text("half")
    return place


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "x.ckpt"
    left = [left_by_a_killed_writer(path)]
    other = left_by_a_killed_writer(tmp_path / "other.ckpt")
    users = [tmp_path / name for name in (".x.ckpt.unfinished", ".x.ckpt.notes.unfinished")]
    for place in users:
        place.write_text("theirs")
    atomic_write_text(path, "new")
    assert sorted(tmp_path.iterdir()) == sorted([path, other, *users])
    assert not left[0].exists()


def test_what_a_living_writer_writes_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with atomic_write(path) as first:
        first.write_text("first")
        atomic_write_text(path, "second")
        assert first.read_text() == "first"
        assert path.read_text() == "second"
    assert path.read_text() == "first"


def test_planted_links_are_not_followed(tmp_path: Path) -> None:
    """Neither in the place itself, nor where something is written or removed beside it."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("theirs")
    path = tmp_path / "x"
    path.symlink_to(victim / "file")
    beside = path.with_name(".x.0123456789abcdef.unfinished")
    beside.symlink_to(victim)
    atomic_write_text(path, "ours")
    assert (victim / "file").read_text() == "theirs"
    assert path.read_text() == "ours"
    assert not path.is_symlink()
    lock = tmp_path / ".lock"
    lock.symlink_to(victim / "file")
    with pytest.raises(OSError, match=r"\.lock"), alone(lock, "testing"):
        pass
    assert (victim / "file").read_text() == "theirs"


def test_an_error_names_the_file(tmp_path: Path) -> None:
    def full() -> None:
        with atomic_write(tmp_path / "x"):
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match=r"\[Errno 28\] No space left on device: .*/x'"):
        full()


def test_temporary_folders_of_killed_processes_are_removed_by_the_next(tmp_path: Path) -> None:
    left = left_by_a_killed_writer(tmp_path / SCRATCH, folder=True)
    with scratch_folder(tmp_path) as mine, scratch_folder(tmp_path) as other:
        assert {mine, other} == set(tmp_path.iterdir())
        assert mine.stat().st_mode & 0o777 == 0o700
        (mine / "deep").mkdir()
    assert not left.exists()
    assert not list(tmp_path.iterdir())


def test_after_kill_9_the_lock_of_a_temporary_folder_is_gone(tmp_path: Path) -> None:
    code = f"""
import sys, types
sys.modules["setwise"] = types.ModuleType("setwise")
sys.modules["setwise"].__path__ = [{str(Path(files.__file__).parent)!r}]
from pathlib import Path
from setwise.files import alone, scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder, alone(Path(sys.argv[1]) / ".lock", "waiting"):
    (folder / "operators").write_text("large")
    print("ready", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdin is not None
    with process.stdin, process.stdout as said:
        assert said.readline() == b"ready\n"
        [theirs] = tmp_path.glob(f".{SCRATCH}.*")
        with scratch_folder(tmp_path):
            assert (theirs / "operators").exists()
        told = rf"process {process.pid} on .* is drawing; wait until it has ended"
        with pytest.raises(BlockingIOError, match=told), alone(tmp_path / ".lock", "drawing"):
            pass
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert theirs.exists()
    with scratch_folder(tmp_path), alone(tmp_path / ".lock", "drawing"):
        assert not theirs.exists()
    assert not list(tmp_path.iterdir())


def test_one_at_a_time(tmp_path: Path) -> None:
    """Also within a process; whoever comes after has the lock to himself."""
    lock = tmp_path / "new" / ".lock"
    for _ in range(2):
        with alone(lock, "drawing"):
            said = f"{lock.parent}: process {os.getpid()} on "
            with pytest.raises(BlockingIOError, match=said), alone(lock, "drawing"):
                pass
            assert lock.exists()
        assert not lock.exists()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Path.mkdir, "expected a file, it is a folder"),
        (os.mkfifo, "expected a file, it is a pipe"),
        (lambda path: path.symlink_to("gone"), "a link to gone, which is not there"),
        (lambda path: path.symlink_to("/dev/zero"), "expected a file, it is a device"),
        (lambda path: None, "No such file"),
    ],
)
def test_what_is_no_file(make: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    make(tmp_path / "x")
    with pytest.raises((OSError, ValueError), match=said) as told:
        require_regular(tmp_path / "x")
    assert str(tmp_path / "x") in str(told.value)


# Names of files


@pytest.mark.parametrize(
    "name", ["a", "towers-3", "table4-best", "Größe 2", "x.y", "数独", "e" * 200]
)
def test_names_that_files_can_have(name: str, tmp_path: Path) -> None:
    path = file_in(tmp_path, name, ".json")
    atomic_write_text(path, name)
    assert [other.name for other in tmp_path.iterdir()] == [f"{name}.json"]


@pytest.mark.parametrize(
    "name",
    [
        *("", " ", ".", "..", "...", "/", "a/b", "../x", "a\\b", "\0", "a\0b", "a\n", " a", "a "),
        *("-rf", ".hidden", "a.", "e" * 201, "ä" * 101, "con", "NUL.txt", "Com1", "\ud800"),
        "\u202egnp.exe",
    ],
)
def test_names_that_lead_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name: expected one that files can have") as told:
        file_in(tmp_path, name)
    assert len(str(told.value)) < 260
