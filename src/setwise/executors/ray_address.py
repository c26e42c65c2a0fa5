"""Addresses of Ray clusters, tried before Ray is imported: Ray would try for long."""

from __future__ import annotations

import os
import socket
from urllib.parse import urlsplit

from setwise.executors.executor import ExecutorError

_ANSWER = 10.0  # seconds for an address to answer


def require_answer(place: str) -> None:
    """Refuse what is neither ``ray`` nor ``ray://HOST:PORT``, and where nobody listens.

    ``ray`` is the cluster that the variable ``RAY_ADDRESS`` names, if it does.
    """
    if place != "ray" and _host_and_port(place) is None:
        raise ValueError(f"executor: expected ray or ray://HOST:PORT, got {place!r}")
    named = place if place != "ray" else os.environ.get("RAY_ADDRESS", "")
    listening = _host_and_port(named)
    if listening is None:
        return  # none is named, or by a word that Ray knows
    try:
        socket.create_connection(listening, timeout=_ANSWER).close()
    except OSError as error:
        raise ExecutorError(
            f"no Ray cluster answers at {named.removeprefix('ray://')}: {error.strerror or error}; "
            f"ray start --head starts one, and ray status on its machine tells whether it runs"
        ) from error


def _host_and_port(address: str) -> tuple[str, int] | None:
    try:
        parts = urlsplit(f"//{address.removeprefix('ray://')}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (host, port) if host and port and not parts.path else None
