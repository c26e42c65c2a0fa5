"""Addresses of Ray clusters, tried before Ray is imported: Ray would try for long."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

from setwise.executors.executor import ExecutorError

_ANSWER = 10.0  # seconds for an address to answer


def require_answer(place: str) -> None:
    """Refuse what is neither ``ray`` nor ``ray://HOST:PORT``, and where nobody listens."""
    if place != "ray" and _host_and_port(place) is None:
        raise ValueError(f"executor: expected ray or ray://HOST:PORT, got {place!r}")
    named = named_cluster(place)
    if named is None or _host_and_port(named) is None:
        return  # none is named, or by a word that Ray knows
    try:
        _try(named)
    except OSError as error:
        raise ExecutorError(
            f"no Ray cluster answers at {named.removeprefix('ray://')}: {error.strerror or error}; "
            f"ray start --head starts one, and ray status on its machine tells whether it runs"
        ) from error


def named_cluster(place: str) -> str | None:
    """The address that the user gave: ``ray`` is what the variable ``RAY_ADDRESS`` says, if so."""
    return place if place != "ray" else os.environ.get("RAY_ADDRESS") or None


def started_here() -> str | None:
    """The cluster of the last ``ray start`` on this machine, if it answers.

    Ray notes it in a file, and notes none that a process has started for itself. Looking for any
    that runs, as ``ray.init("auto")`` does, finds those too, which end with that process. After a
    crash the file is still there, and Ray would wait for minutes.
    """
    linux = sys.platform.startswith("linux")
    folder = os.environ.get("RAY_TMPDIR") or (linux and os.environ.get("TMPDIR")) or "/tmp"
    try:
        address = Path(folder, "ray", "ray_current_cluster").read_text(encoding="utf-8").strip()
        _try(address)
    except (OSError, ValueError):
        return None
    return address


def _try(address: str) -> None:
    """An `OSError` where nobody listens, a `ValueError` of what is no address."""
    listening = _host_and_port(address)
    if listening is None:
        raise ValueError(f"expected HOST:PORT, got {address!r}")
    socket.create_connection(listening, timeout=_ANSWER).close()


def _host_and_port(address: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(f"//{address.removeprefix('ray://')}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (host, port) if host and port and not parts.path else None
