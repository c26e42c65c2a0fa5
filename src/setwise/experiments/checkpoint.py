"""Tensors and a few facts about them in one file, which is either whole or not there.

What reads and writes such files is imported when it is needed: experiments can be defined, and
their records read, without it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from setwise.files import atomic_write


def write(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write to a file beside it and rename: a reader sees the old file or the new, never a part."""
    from safetensors.torch import save_file

    with atomic_write(path) as unfinished:
        save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()},
            unfinished,
            metadata={"facts": json.dumps(facts)},
        )
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the facts."""
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return tensors, _facts(path, file)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, without reading the tensors."""
    with _opened(path) as file:
        return _facts(path, file)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged, or no checkpoint at all ({error})") from error


def _facts(path: Path, file: Any) -> dict[str, Any]:
    metadata = file.metadata() or {}
    if "facts" not in metadata:
        raise ValueError(f"{path}: not a checkpoint of setwise; it has no facts in its header")
    facts: dict[str, Any] = json.loads(metadata["facts"])
    return facts
