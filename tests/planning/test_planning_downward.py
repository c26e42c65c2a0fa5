"""The planner as a program: the real one, and others that misbehave in every way."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from programs import assert_gone, program
from setwise.planning import Outcome, downward, find_executable, latent_graph, limited, sas, search


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All temporary files go here, so that leftovers can be seen."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    monkeypatch.delenv(downward.EXECUTABLE_VARIABLE, raising=False)
    return place


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return chain(tmp_path, init=0, goal=3)


def chain(path: Path, init: int, goal: int) -> Path:
    """Four codes in a row, with steps to the next one only."""
    codes = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]], dtype=bool)
    graph = latent_graph(codes, [[0, 1], [1, 2], [2, 3]])
    variables = sas.variables_of(graph, "full")
    with (path / "operators").open("wb") as file:
        sas.write_operators(file, variables, graph.edges)
    task = path / f"{init}-{goal}.sas"
    sas.write_task(task, variables, path / "operators", 3, init, goal)
    return task


def test_the_real_planner(tmp_path: Path, temporary: Path) -> None:
    solved = search(chain(tmp_path, 0, 3))
    assert solved.outcome is Outcome.SOLVED
    assert solved.plan == ("t0", "t1", "t2")
    assert solved.cost == 3
    assert solved.expanded is not None
    assert solved.expanded >= 3
    assert solved.peak_mb is not None
    assert "Solution found" in solved.log
    assert search(chain(tmp_path, 1, 2), heuristic="lmcut").plan == ("t1",)
    assert search(chain(tmp_path, 1, 2), heuristic="hmax(cache_estimates=false)").plan == ("t1",)
    nothing = search(chain(tmp_path, 2, 2))
    assert (nothing.outcome, nothing.plan, nothing.cost) == (Outcome.SOLVED, (), 0)
    backwards = search(chain(tmp_path, 3, 0))
    assert backwards.outcome is Outcome.UNSOLVABLE
    assert backwards.plan is None
    assert backwards.cost is None
    misspelt = search(chain(tmp_path, 0, 3), heuristic="blnd")
    assert misspelt.outcome is Outcome.ERROR
    assert "heuristic" in misspelt.reason
    assert "blnd" in misspelt.log
    (tmp_path / "broken.sas").write_text("begin_version\n2\n")
    assert search(tmp_path / "broken.sas").outcome is Outcome.ERROR
    cramped = search(chain(tmp_path, 0, 3), memory_mb=8)
    assert cramped.outcome in (Outcome.OUT_OF_MEMORY, Outcome.ERROR)  # it may not even start
    assert list(temporary.iterdir()) == []


FAKES: list[tuple[str, Outcome, str]] = [
    ("exit 3", Outcome.ERROR, "exit code 3"),
    ("kill -SEGV $$", Outcome.ERROR, "killed by SIGSEGV"),
    ("kill -KILL $$", Outcome.ERROR, "killed by SIGKILL"),
    ("exit 11", Outcome.UNSOLVABLE, "no plan"),
    ("exit 12", Outcome.ERROR, "exit code 12"),
    (
        "echo 'Completely explored state space -- no solution!'; exit 12",
        Outcome.UNSOLVABLE,
        "whole",
    ),
    ("exit 22", Outcome.OUT_OF_MEMORY, "memory"),
    ("exit 23", Outcome.OUT_OF_TIME, "time"),
    ("echo 'terminate called: std::bad_alloc'; kill -ABRT $$", Outcome.OUT_OF_MEMORY, "memory"),
    ("exit 0", Outcome.ERROR, "wrote none"),
    ("head -c 9999 /dev/urandom", Outcome.ERROR, "wrote none"),
    ("head -c 99 /dev/urandom > found_plans/plan", Outcome.ERROR, "cannot be read"),
    ("echo 'no plan today' > plan", Outcome.ERROR, "cannot be read: 'no plan today'"),
    ("echo '(t0)' > plan; exit 1", Outcome.ERROR, "exit code 1"),
    ("printf '(t0)\\n(t1)\\n; cost = 2 (unit cost)\\n' > plan", Outcome.SOLVED, "2 steps"),
    ("printf '(t4)\\n' > found_plans/plan", Outcome.SOLVED, "1 step"),
]


@pytest.mark.parametrize(("script", "outcome", "reason"), FAKES)
def test_what_a_planner_may_do(
    tmp_path: Path, task: Path, temporary: Path, script: str, outcome: Outcome, reason: str
) -> None:
    fake = program(tmp_path / "fake", f"#!/bin/sh\n{script}\n")
    found = search(task, executable=fake)
    assert found.outcome is outcome
    assert reason in found.reason
    assert (found.plan is not None) == (outcome is Outcome.SOLVED)
    assert list(temporary.iterdir()) == []


def test_a_planner_that_takes_all_memory(tmp_path: Path, task: Path) -> None:
    hog = f"#!{sys.executable}\nkept = []\nwhile True: kept.append(bytearray(10**7))\n"
    found = search(task, executable=program(tmp_path / "hog", hog), memory_mb=400, seconds=30)
    assert found.outcome is Outcome.OUT_OF_MEMORY
    assert "MemoryError" in found.log


def test_a_planner_that_writes_without_end_is_stopped(tmp_path: Path, task: Path) -> None:
    fake = program(tmp_path / "fake", "#!/bin/sh\nulimit -f 100\nexec yes\n")
    found = search(task, executable=fake, seconds=30)
    assert found.outcome is Outcome.ERROR
    assert "SIGXFSZ" in found.reason
    assert len(found.log) <= 8000


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("sleep 1000", Outcome.OUT_OF_TIME),
        ("kill -KILL $$", Outcome.ERROR),
        ("exit 12", Outcome.ERROR),
        ("echo '(t0)' > plan", Outcome.SOLVED),
    ],
)
def test_no_child_is_left(
    tmp_path: Path, task: Path, temporary: Path, end: str, outcome: Outcome
) -> None:
    """Children that do not listen to polite signals, and their children."""
    pids = tmp_path / "pids"
    script = f"""#!/bin/sh
trap '' TERM INT HUP
for _ in 1 2; do
  (trap '' TERM HUP; sleep 1000 & echo $! >> {pids}; wait) &
  echo $! >> {pids}
done
echo $$ >> {pids}
while [ $(wc -l < {pids}) -lt 5 ]; do sleep 0.01; done
{end}
"""
    start = time.monotonic()
    found = search(task, executable=program(tmp_path / "fake", script), seconds=1.5)
    assert found.outcome is outcome
    assert time.monotonic() - start < 10
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 5
    assert_gone(started)
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes a child along")
def test_the_planner_dies_with_the_library() -> None:
    """Even when it is killed and can clean up nothing."""
    code = """
import os, subprocess, sys
command = [sys.executable, "-I", "-S", sys.argv[1], str(os.getpid()), str(10**9)]
process = subprocess.Popen([*command, "/bin/sleep", "1000"], start_new_session=True)
print(process.pid, flush=True)
process.wait()
"""
    library = subprocess.Popen(
        [sys.executable, "-c", code, limited.__file__], stdout=subprocess.PIPE, text=True
    )
    assert library.stdout is not None
    planner = int(library.stdout.readline())
    deadline = time.monotonic() + 10
    while "sleep" not in psutil.Process(planner).name():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    library.kill()
    library.wait()
    library.stdout.close()
    assert_gone([planner])


def test_a_planner_that_starts_too_late_does_not_start() -> None:
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    command = [sys.executable, "-I", "-S", limited.__file__, str(gone.pid), str(10**9)]
    late = subprocess.run([*command, "/bin/echo", "started"], capture_output=True, text=True)
    assert (late.returncode, late.stdout) == (limited.CANNOT_START, "")


def test_an_interrupted_search_kills_the_planner(
    tmp_path: Path, task: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = subprocess.Popen.wait
    started: list[int] = []

    def interrupted(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if timeout is None:
            return wait(self)
        started.append(self.pid)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    fake = program(tmp_path / "fake", "#!/bin/sh\nsleep 1000\n")
    with pytest.raises(KeyboardInterrupt):
        search(task, executable=fake)
    assert_gone(started)
    assert list(temporary.iterdir()) == []


def test_a_plan_that_lies_about_is_not_taken(
    tmp_path: Path, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = tmp_path / "elsewhere"
    (stale / "found_plans").mkdir(parents=True)
    for place in (stale / "plan", stale / "found_plans" / "plan"):
        place.write_text("(t0)\n")
    monkeypatch.chdir(stale)
    fake = program(tmp_path / "fake", "#!/bin/sh\nexit 0\n")
    assert search(task, executable=fake).outcome is Outcome.ERROR


def test_the_planner_is_told_what_to_do(tmp_path: Path, task: Path) -> None:
    fake = program(tmp_path / "fake", '#!/bin/sh\necho "$@"; cat; echo "(t0)" > plan\n')
    found = search(task, executable=fake, heuristic="lmcut")
    assert "--search astar(lmcut()) --internal-plan-file plan" in found.log
    assert task.read_text() in found.log
    assert (found.plan, found.cost, found.expanded) == (("t0",), 1, None)


def test_a_file_that_is_no_program(tmp_path: Path, task: Path) -> None:
    found = search(task, executable=program(tmp_path / "fake", "\x00\x01"))
    assert found.outcome is Outcome.ERROR
    assert "could not be started" in found.reason
    assert "fake" in found.log


def test_where_the_planner_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = program(tmp_path / "mine", "#!/bin/sh\n")
    built = program(tmp_path / "downward/builds/release/bin/downward", "#!/bin/sh\n")
    assert find_executable(mine) == mine
    assert find_executable(str(tmp_path / "downward")) == built
    monkeypatch.setenv(downward.EXECUTABLE_VARIABLE, str(built))
    assert find_executable() == built
    assert find_executable(mine) == mine
    monkeypatch.setenv(downward.EXECUTABLE_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"^SETWISE_FAST_DOWNWARD: .*nowhere is no program"):
        find_executable()
    with pytest.raises(FileNotFoundError, match=r"^executable: .*task is no program"):
        find_executable(tmp_path / "task")
    mine.chmod(0o644)
    with pytest.raises(FileNotFoundError, match=r"^executable: .*mine is no program"):
        find_executable(mine)
    monkeypatch.delenv(downward.EXECUTABLE_VARIABLE)
    monkeypatch.setattr(downward, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"setwise\[planning\].*executable.*SETWISE_FAST"):
        find_executable()


def test_the_extra_has_the_planner() -> None:
    assert os.access(find_executable(), os.X_OK)
    assert "kstar_planner" not in sys.modules  # it is run, never imported


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seconds": 0.0}, r"^seconds: expected a positive number, got 0.0"),
        ({"seconds": float("nan")}, r"^seconds: .* got nan"),
        ({"memory_mb": 0}, r"^memory_mb: .* at least 1, got 0"),
        ({"memory_mb": 0.5}, r"^memory_mb: .* got 0.5"),
        ({"heuristic": " "}, r"^heuristic: expected a name"),
    ],
)
def test_bad_options_are_refused(task: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        search(task, **options)  # type: ignore[arg-type]
