"""A disk that is full at many sizes: one line, exit code 2, and the same command goes on."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest

from attacked_commands import DEMO, OWN, TRAIN, content
from killed import Command, run

# Slow: some fifty processes. In the first tier tests/experiments/test_results_shared.py has a full
# disk while a training is saved and recorded.
pytestmark = pytest.mark.slow
SIZES = 10


def fresh(place: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=place))
    (folder / "own.py").write_text(OWN)
    return folder


@pytest.mark.parametrize("command", [TRAIN, DEMO], ids=["train", "demo"])
def test_a_full_disk_costs_nothing(command: Command, tmp_path: Path) -> None:
    undisturbed = fresh(tmp_path)
    whole = run(command, undisturbed)
    assert whole.code in (0, 1), whole.said
    expected = content(undisturbed)
    largest = max(path.stat().st_size for path in undisturbed.rglob("*") if path.is_file())
    rng, refused = random.Random(len(command.arguments)), 0
    for _ in range(SIZES):
        folder = fresh(tmp_path)
        # From no room at all, through room for records and none for checkpoints, to some for both.
        end = run(command, folder, largest=int(largest * rng.random() ** 2))
        if end.code != whole.code:
            refused += 1
            assert end.code == 2, end.said
            said = end.said.splitlines()[-1]
            assert "File too large: " in said, end.said
            assert "Traceback" not in end.said
        assert not list(folder.rglob("*.unfinished"))
        again = run(command, folder)
        assert again.code == whole.code, again.said
        assert content(folder) == expected
    assert refused >= SIZES / 2
