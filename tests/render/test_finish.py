"""Pictures that other processes describe: the same ones, and no process outlives its work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from programs import assert_gone
from setwise.render import dataset
from setwise.render.backends import renderer_version
from setwise.render.tabletop import SceneSettings

TABLE = SceneSettings(renderer="torch", width=24, height=24, samples=2, least=2, most=5)
# Slow: processes start.
pytestmark = pytest.mark.slow

SCRIPT = """
import os, signal, sys, time
import numpy as np
from setwise.executors import ExecutorError
from setwise.render.finish import Drawing, finished

def describe(number, scene):
    match scene:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wrong":
            raise ValueError(f"picture {number} is wrong")
    print(os.getpid(), flush=True)
    time.sleep(float(scene))
    return {}

if __name__ == "__main__":
    image = np.zeros((1, 1, 3), np.uint8)
    for number, scene in enumerate(sys.argv[1:]):
        try:
            list(finished([Drawing(number, scene, image)], describe, 2, 1))
        except (ExecutorError, KeyboardInterrupt, ValueError) as error:
            print(type(error).__name__, error, flush=True)
"""


def started(folder: Path, *scenes: str) -> subprocess.Popen[str]:
    """The script, which describes one picture after the other, each by processes of its own."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), *scenes],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_killed_process_is_reported_and_none_outlives_the_one_it_works_for(
    tmp_path: Path,
) -> None:
    with started(tmp_path, "killed", "60") as child:
        assert child.stdout is not None
        said = child.stdout.readline()
        assert said.startswith("ExecutorError a process that describes pictures was killed")
        assert "start again to go on" in said
        busy = int(child.stdout.readline())
        child.kill()
    assert_gone([busy])


def test_errors_come_through_and_ctrl_c_is_heard_by_the_one_that_draws(tmp_path: Path) -> None:
    with started(tmp_path, "wrong", "1") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ValueError picture 0 is wrong\n"
        busy = int(child.stdout.readline())
        os.killpg(child.pid, signal.SIGINT)  # as a terminal does
        said, complaints = child.communicate(timeout=60)
    assert said.split() == ["KeyboardInterrupt"]
    assert complaints == ""
    assert child.returncode == 0
    assert_gone([busy])


def test_pictures_described_by_other_processes_are_the_same() -> None:
    """In the same order."""
    told: dict[int, list[Any]] = {1: [], 2: []}
    version = renderer_version("torch")
    for processes, pictures in told.items():
        dataset.draw_scenes(
            TABLE,
            [5, 0, 3],
            version,
            None,
            "cpu",
            processes,
            tell=pictures.append,
            stop=lambda: False,
        )
    assert [number for number, _, _ in told[2]] == [5, 0, 3]
    assert told[2] == told[1]


def test_on_a_gpu_one_process_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[int], int]] = []

    def drawn(_: Any, numbers: list[int], *rest: Any, tell: Any, stop: Any) -> None:
        asked.append((numbers, rest[-1]))
        for number in numbers:
            tell((number, b"", {}))

    monkeypatch.setattr(dataset, "draw_scenes", drawn)
    monkeypatch.setattr(dataset, "require_device", lambda *args, **kwargs: None)
    monkeypatch.setattr(dataset, "_cores", lambda: 7)
    for workers in (None, 3, 1):
        place = tmp_path / str(workers)
        dataset.render_scenes(TABLE, range(5), place, workers=workers, device="cuda")
        assert len(list((place / "images").iterdir())) == 5
    assert asked == [([0, 1, 2, 3, 4], processes) for processes in (7, 3, 1)]
