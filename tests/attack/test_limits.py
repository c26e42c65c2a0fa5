"""The harness of these tests sees what it has to see: a hang, a traceback, too much memory."""

from __future__ import annotations

import os
import sys
import time

import pytest

from limits import failures, within_limits

pytestmark = pytest.mark.slow  # a server of processes has to start; every attack runs through it


def act(case: str) -> str:
    if case == "hang":
        time.sleep(100)
    if case == "hang in C":
        sum(range(10**12))
    if case == "raise":
        raise ValueError("for no reason")
    if case == "leave":
        sys.exit(3)
    if case == "die":
        os._exit(9)
    if case == "memory":
        return str(len(bytearray(2**30)))
    return case.upper()


def test_what_is_wrong_is_seen_and_the_rest_goes_on() -> None:
    cases = ["a", "hang", "b", "hang in C", "raise", "c", "leave", "die", "memory", "d"]
    found = within_limits(act, cases, seconds=1.0, megabytes=500)
    assert [one.case for one in found] == cases
    assert [one.value for one in found if one.failure is None] == ["A", "B", "C", "D"]
    said = {one.case: one.failure.splitlines()[-1] for one in found if one.failure}
    assert said == {
        "hang": "took more than 1.0 s",
        "hang in C": "took more than 1.0 s",
        "raise": "ValueError: for no reason",
        "leave": "SystemExit: 3",
        "die": "ended its process, exit code 9",
        "memory": "MemoryError",
    }
    assert failures(found).startswith("6 of 10 cases failed\n'hang': took more than 1.0 s\n")
    assert failures(found[:1]) == ""
