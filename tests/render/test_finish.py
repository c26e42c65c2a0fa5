"""Processes that describe pictures: they are missed when they are killed, and end with their own.

That their files are those of one process is in test_tracer.py.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from programs import assert_gone

SCRIPT = """
import os, signal, time
import numpy as np
from setwise.executors import ExecutorError
from setwise.render.finish import Drawing, finished

def describe(number, scene):
    if number == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    print(os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    image = np.zeros((1, 1, 3), np.uint8)
    for number in range(2):
        try:
            list(finished([Drawing(number, None, image)], describe, 2, 1))
        except ExecutorError as error:
            print(error, flush=True)
"""


# Slow: three processes start.
@pytest.mark.slow
def test_a_killed_process_is_reported_and_none_outlives_the_one_it_works_for(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    child = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    said = child.stdout.readline()
    assert said.startswith("a process that describes pictures was killed")
    assert "start again to go on" in said
    busy = int(child.stdout.readline())
    child.kill()
    child.wait()
    child.stdout.close()
    assert_gone([busy])
