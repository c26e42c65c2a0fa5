"""Tensors and a few facts about them in one file, which is either whole or not there.

A digest of all of it is among the facts, so that a file that changed afterwards is not taken for
what was written; files of earlier releases have none. What reads and writes such files is imported
when it is needed: experiments can be defined, and their records read, without it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from setwise.files import atomic_write, require_regular

_DIGEST = "sha256"


def write(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write to a file beside it and rename: a reader sees the old file or the new, never a part."""
    write_packed(path, packed(tensors, facts))


def write_packed(path: Path, content: bytes) -> None:
    """Likewise what `packed` gave, perhaps on another machine."""
    # Written here: `save_file` has temporary files of its own, which it leaves behind when killed.
    with atomic_write(path) as unfinished:
        unfinished.write_bytes(content)


def packed(tensors: dict[str, Tensor], facts: dict[str, Any]) -> bytes:
    """The content of the file."""
    from safetensors.torch import save

    saved = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header = json.dumps(facts | {_DIGEST: _digest(saved, facts)})
    return save(saved, metadata={"facts": header})


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the facts."""
    while True:
        require_regular(path)
        before = _version(path)
        try:
            return _read_once(path)
        except ValueError:
            # Safetensors opens a file once for its header and once for its tensors: where another
            # took its place in between, they do not belong together, and nothing is damaged.
            if _version(path) == before:
                raise


def _version(path: Path) -> tuple[int, int]:
    """Another one after each `write`."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns


def _read_once(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with _opened(path) as file:
        facts = _facts(path, file)
        expected = facts.pop(_DIGEST, None)
        # No larger than the file: what its header claims was held against its size.
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if expected is not None and _digest(tensors, facts) != expected:
        raise ValueError(f"{path}: damaged; it does not hold what was written to it")
    return tensors, facts


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, without reading the tensors."""
    with _opened(path) as file:
        facts = _facts(path, file)
    facts.pop(_DIGEST, None)
    return facts


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    require_regular(path)
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or no checkpoint at all ({error})") from error


def _facts(path: Path, file: Any) -> dict[str, Any]:
    metadata = file.metadata() or {}
    if "facts" not in metadata:
        raise ValueError(f"{path}: not a checkpoint of setwise; it has no facts in its header")
    try:
        facts = json.loads(metadata["facts"])
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: damaged; the facts in its header are no JSON: {error}"
        ) from error
    if not isinstance(facts, dict):
        raise ValueError(f"{path}: damaged; expected facts in its header, got {str(facts)[:40]!r}")
    return facts


def _digest(tensors: dict[str, Tensor], facts: dict[str, Any]) -> str:
    found = hashlib.sha256(json.dumps(facts).encode())
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()
