"""Records of action models: measured once, kept line by line, named by their settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from setwise.environment import describe
from setwise.files import atomic_write_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Setting = TypeVar("Setting", bound="DataclassInstance")
FOLDER = Path(__file__).parent.parent / "results" / "actions"


def read(path: Path) -> list[dict[str, Any]]:
    """The records in a file; none if there is no file."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def record(
    path: Path, settings: Iterable[Setting], measure: Callable[[Setting], dict[str, Any]]
) -> None:
    """Measure what is not recorded yet."""
    environment = describe(torch.device("cpu"))
    for setting in settings:
        records = read(path)
        if any(one["setting"] == asdict(setting) for one in records):
            continue
        found = {"setting": asdict(setting)} | measure(setting) | {"environment": environment}
        lines = map(json.dumps, [*records, found])
        atomic_write_text(path, "".join(f"{line}\n" for line in lines))
        print(f"{path.name}: {setting}", flush=True)


def made_on(records: Sequence[dict[str, Any]]) -> str:
    """The line below a table: where its numbers were measured, and of which commit."""
    said = set()
    for one in records:
        commit = str(one["environment"]["commit"])
        said.add(f"{one['environment']['hardware']}, commit {commit[:12]}{commit[40:]}")
    return f"On {'; '.join(sorted(said))}.\n"
