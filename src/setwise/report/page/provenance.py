"""Where numbers come from: the commands that make them, and what they were made with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from setwise.experiments.experiment import Sheet
from setwise.experiments.records import Record
from setwise.report import tables
from setwise.report.page.markup import piece
from setwise.report.page.pieces import Markup

UNKNOWN = "not recorded"


@dataclass(frozen=True)
class Source:
    """Records that were made in one place."""

    what: str
    hardware: str
    software: str
    commit: str
    date: str


def commands_for(sheet: Sheet, *, again: bool) -> list[str]:
    """What to type for an experiment; for one that is recorded, to have it ``again``.

    What is recorded is not trained a second time, and published records are not added to.
    """
    elsewhere = " --results runs/again" if again else ""
    return [f"{command}{elsewhere}" for command in sheet.command.splitlines()]


def sources_of(records: Sequence[Record]) -> list[Source]:
    """Runs by the machine, the versions and the commit that they were made with."""
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        groups[_place(record["environment"])].append(record)
    return [
        Source(f"{len(found)} runs in {tables.seconds(found):.0f} s", *place, _days(found))
        for place, found in groups.items()
    ]


def source_of(record: dict[str, Any], environment: dict[str, Any], what: str) -> Source:
    """Of one record, whose environment may lie anywhere in it."""
    return Source(what, *_place(environment), _days([record]))


def provenance(
    commands: Sequence[str], sources: Sequence[Source], subject: str = "this", level: int = 3
) -> Markup:
    """The commands, and a list of what is known of each source, under a heading of their own."""
    return piece("provenance", commands, sources, subject, level)


def _place(environment: dict[str, Any]) -> tuple[str, str, str]:
    hardware = environment.get("hardware") or environment.get("device")
    if hardware is None and "machine" in environment:
        hardware = f"{environment['machine']}, {environment.get('threads')} threads"
    software = [
        f"{name} {environment[name]}"
        for name in ("setwise", "torch", "triton", "python")
        if environment.get(name)
    ]
    commit = str(environment.get("commit") or UNKNOWN)
    # A mark behind the forty letters of a commit says that files were changed since.
    short = commit[:12] + commit[40:] if len(commit) >= 40 else commit
    return str(hardware or UNKNOWN), ", ".join(software) or UNKNOWN, short


def _days(records: Sequence[dict[str, Any]]) -> str:
    days = sorted({str(r.get("finished") or r.get("date") or "")[:10] for r in records} - {""})
    if not days:
        return UNKNOWN
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
