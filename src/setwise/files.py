"""Files that are whole or not there, work that one process does at a time, and names of files.

What is being written lies beside its place, as ``.NAME.TOKEN.unfinished``, and whoever writes it
holds a lock on it. The lock ends with the process, however that ends: so whoever writes the same
name next knows what was abandoned, and removes it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SCRATCH = "setwise-scratch"
FILE = "a file"  # a regular one; see `kind_of`
_LONGEST = 200  # bytes of a name: systems take 255, and unfinished files have longer ones
# Of devices, wherever Windows looks for a file, and with any ending.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
# What file systems say that have no locks; those of networks, EBADF of what cannot be written to.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)
_DEVICES = "/dev"


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Gives a name beside a path to write to; what is there at the end takes the path's place.

    The folder is made if it is missing. After an error nothing has changed, and the error names the
    path. The given name does not end as the path does, so a writer that goes by endings has to be
    told the format. A link in the place is replaced, and never followed. What is no file, such as
    a device, is no place for one, nor is a link to it.
    """
    _require_place(path)
    try:
        with unfinished(path) as place:
            yield place
            _to_disk(place)
            place.replace(path)
            _to_disk(path.parent)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def atomic_write_text(path: Path, text: str) -> None:
    """Write UTF-8 in one step, into a folder that is made if it is missing."""
    with atomic_write(path) as place:
        place.write_text(text, encoding="utf-8")


@contextmanager
def unfinished(path: Path, *, folder: bool = False) -> Iterator[Path]:
    """A new empty file, or folder, beside a path; whatever is left of it at the end is removed.

    So is what others, who were killed, left unfinished there. Nobody can have put a link in its
    place: the name is random, and has to be free.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    place, handle = _claimed(path, folder)
    try:
        yield place
    finally:
        _remove(place)
        os.close(handle)


@contextmanager
def scratch_folder(directory: Path | None = None) -> Iterator[Path]:
    """A folder for temporary files that only this user can read; after kill -9 the next removes it.

    It is in ``directory``, or where the system has temporary files.
    """
    place = Path(tempfile.gettempdir()) if directory is None else directory
    with unfinished(place / SCRATCH, folder=True) as folder:
        folder.chmod(0o700)
        yield folder


def remove_scratch() -> None:
    """Remove what killed processes left of their folders for temporary files.

    Each new one does so too; this is for commands that may find that they need none.
    """
    _remove_abandoned(Path(tempfile.gettempdir()) / SCRATCH)


@contextmanager
def alone(lock: Path, doing: str) -> Iterator[None]:
    """Keep other processes from doing the same; a killed one no longer does.

    Of those that hold the file ``lock``, which is removed at the end, there is one at a time.
    Another is told what is being done, and by which process, in a BlockingIOError.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    handle, ours = _opened(lock, wait=False)
    try:
        if not ours:
            holder = os.pread(handle, 200, 0).decode(errors="replace") or "another"
            raise BlockingIOError(
                f"{lock.parent}: process {holder} is {doing}; wait until it has ended, or choose "
                f"another folder"
            )
        with suppress(OSError):  # a courtesy, for which a full disk may have no room
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        if ours:
            lock.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is missing, for a change of it; others wait.

    It stays good if the file is replaced meanwhile, as `atomic_write` does.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, _ = _opened(path, wait=True)
    try:
        yield
    finally:
        os.close(handle)


def kind_of(path: Path) -> str:
    """What is at a path, or where a link there leads to: `FILE`, or what is no regular file."""
    names = {
        **{stat.S_IFREG: FILE, stat.S_IFDIR: "a folder"},
        **{stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"},
    }
    return names.get(stat.S_IFMT(path.stat().st_mode), "a device")


def require_regular(path: Path) -> None:
    """Refuse what is no file: a pipe, for one, would be waited for without an end."""
    if path.is_symlink() and not path.exists():
        raise FileNotFoundError(f"{path}: a link to {path.readlink()}, which is not there")
    if (kind := kind_of(path)) != FILE:
        raise ValueError(f"{path}: expected a file, it is {kind}")


def require_name(what: str, name: str) -> str:
    """The name, if files and folders can have it, and it leads to no place but its own.

    >>> require_name("name", "towers-3")
    'towers-3'
    >>> require_name("name", "..")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: name: expected one that files can have, ... got '..'
    """
    if (
        not name.isprintable()
        or set(name) & set("/\\")
        or name != name.strip()
        or not name.strip(".")
        or name[0] in ".-"
        or name[-1] == "."
        or len(name.encode()) > _LONGEST
        or _RESERVED.fullmatch(name)
    ):
        raise ValueError(
            f"{what}: expected one that files can have, printable, at most {_LONGEST} bytes, "
            f"without / and \\, not beginning with . or -, and no device of Windows, got "
            f"{name!r:.60}"
        )
    return name


def file_in(folder: Path, name: str, ending: str = "") -> Path:
    """Where the file of a name is: in the folder, whatever the name is, or it is an error."""
    return folder / f"{require_name('name', name)}{ending}"


class _NoLocksError(OSError):
    """The file system has no locks."""


def _require_place(path: Path) -> None:
    """Refuse to write a file where it would replace what is none, or a link to such."""
    if path.exists() and (kind := kind_of(path)) != FILE:
        raise FileExistsError(f"{path}: expected the name of a file, it is {kind}")
    if os.path.realpath(path.parent) == _DEVICES:  # where stdout is a link, perhaps to a file
        raise FileExistsError(f"{path}: expected the name of a file, not in {_DEVICES}")


def _opened(path: Path, wait: bool) -> tuple[int, bool]:
    """A file, made if it is missing, and whether its lock is ours until it is closed."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            ours = _lock(handle, wait)
        except _NoLocksError as error:
            os.close(handle)
            raise OSError(
                f"{path}: cannot be locked ({error.strerror}): the file system of {path.parent} "
                f"has no locks; choose a folder on another"
            ) from error
        if not ours or _is_at(path, handle):
            return handle, ours
        os.close(handle)  # it was replaced or removed before the lock was ours


def _claimed(path: Path, folder: bool) -> tuple[Path, int]:
    """A new file or folder beside a path, and the handle whose lock says that it is in use."""
    while True:
        place = path.with_name(f".{path.name}.{secrets.token_hex(8)}.unfinished")
        try:
            if folder:
                place.mkdir()
            else:
                handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except OSError as error:  # of a name that nobody has chosen
            raise OSError(error.errno, error.strerror, str(path)) from error
        with suppress(FileNotFoundError):  # taken for abandoned, before there was a lock on it
            if folder:
                handle = os.open(place, os.O_RDONLY | os.O_NOFOLLOW)
            with suppress(_NoLocksError):  # then nobody takes it for abandoned
                _lock(handle, wait=True)
            if _is_at(place, handle):
                return place, handle
            os.close(handle)


def _remove_abandoned(path: Path) -> None:
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{16}}\.unfinished")
    for place in [place for place in path.parent.iterdir() if ours.fullmatch(place.name)]:
        try:
            # On file systems of networks, what cannot be written to cannot be locked either.
            access = os.O_RDONLY if place.is_dir() else os.O_RDWR
            handle = os.open(place, access | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue  # it is a link, somebody else's, or gone
        try:
            with suppress(_NoLocksError):  # nobody knows whether it is abandoned
                if os.fstat(handle).st_uid == os.getuid() and _lock(handle, wait=False):
                    _remove(place)
        finally:
            os.close(handle)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def _lock(handle: int, wait: bool) -> bool:
    import fcntl  # only here: reading works where there is no such module

    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise _NoLocksError(error.errno, error.strerror) from error
        raise
    return True


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
