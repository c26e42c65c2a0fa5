"""The order in which the suite is run by several processes."""

from __future__ import annotations

import pytest

from longest_first import LONGEST, longest_first
from repository import ROOT


def test_long_files_are_there() -> None:
    assert [name for name in LONGEST if not (ROOT / "tests" / name).is_file()] == []


@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("others", [0, 7, 200])
def test_nothing_is_lost_and_shares_begin_with_what_takes_long(processes: int, others: int) -> None:
    tests = [(f"/tests/short{n // 5}.py", f"short {n}") for n in range(others)]
    tests += [(f"/tests/{name}", f"{name} {n}") for name in LONGEST for n in range(2)]
    ordered = longest_first(tests, processes)
    assert sorted(ordered) == sorted(test for _, test in tests)
    begin = 0
    for left in range(processes, 0, -1):
        assert ordered[begin].split()[0] in LONGEST
        begin += (len(tests) - begin) // left
    for name in LONGEST:  # what it sets up is set up once
        at = ordered.index(f"{name} 0")
        assert ordered[at + 1] == f"{name} 1"
