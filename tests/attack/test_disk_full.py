"""A disk that is full at many sizes: one line, exit code 2, and the same command goes on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from attacked_commands import COMMANDS, content
from killed import run

# Slow: some thirty processes. In the first tier tests/experiments/test_results_shared.py has a full
# disk while a training is saved and recorded.
pytestmark = pytest.mark.slow
SIZES = (1, 2, 3, 4)  # how often the disk is full, before there is room


@pytest.mark.parametrize("name", ["train FILE.py", "demo"])
def test_a_full_disk_costs_nothing(name: str, tmp_path: Path) -> None:
    command, fresh = COMMANDS[name].command, COMMANDS[name].fresh
    undisturbed = fresh(tmp_path)
    whole = run(command, undisturbed)
    assert whole.code in (0, 1), whole.said
    expected = content(undisturbed)
    largest = max(path.stat().st_size for path in undisturbed.rglob("*") if path.is_file())
    rng, refused = random.Random(len(command.arguments)), 0
    for times in SIZES:
        folder = fresh(tmp_path)
        for _ in range(times):
            # From no room at all, through some for records, to nearly enough.
            end = run(command, folder, largest=int(largest * rng.random() ** 2))
            assert end.code in (2, whole.code), end.said
            if end.code == 2:
                refused += 1
                assert "File too large: " in end.said.splitlines()[-1], end.said
                assert "Traceback" not in end.said
            assert not list(folder.rglob("*.unfinished"))
        again = run(command, folder)
        assert again.code == whole.code, again.said
        assert content(folder) == expected
    assert refused >= sum(SIZES) / 2
