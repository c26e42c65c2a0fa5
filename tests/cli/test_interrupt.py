"""SIGTERM and SIGHUP end a command as Ctrl-C does, and leave nothing temporary behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import setwise_command
from setwise.cli.interrupt import all_like_ctrl_c, interruptible
from setwise.files import SCRATCH

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture(autouse=True)
def none_is_ignored() -> Iterator[None]:
    """As they may be where the tests run in the background."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_each_is_a_keyboard_interrupt(number: signal.Signals) -> None:
    before = handlers()
    with pytest.raises(KeyboardInterrupt), all_like_ctrl_c():
        signal.raise_signal(number)
    assert handlers() == before


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_training_notes_the_first(number: signal.Signals) -> None:
    """And only Ctrl-C ends it then: a terminal that is closed sends SIGHUP twice."""
    before = handlers()
    with interruptible() as interrupt:
        assert not interrupt()
        signal.raise_signal(number)
        assert interrupt()
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert handlers() == before


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_what_is_ignored_stays_so(number: signal.Signals) -> None:
    """After nohup, and by what a script runs in the background, a command goes on."""
    signal.signal(number, signal.SIG_IGN)
    with all_like_ctrl_c(), interruptible() as interrupt:
        signal.raise_signal(number)
        assert not interrupt()


@pytest.mark.parametrize("ignored", [False, True])
def test_while_the_library_is_imported(ignored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.SIG_IGN if ignored else signal.default_int_handler
    signal.signal(signal.SIGINT, before)
    seen: list[object] = []

    class Library(ModuleType):
        @property
        def main(self) -> Callable[[], int]:
            seen.append(signal.getsignal(signal.SIGINT))
            return lambda: 0

    monkeypatch.setitem(sys.modules, "setwise.cli", Library("setwise.cli"))
    assert setwise_command.main() == 0
    assert seen == [signal.SIG_IGN if ignored else setwise_command._stop]
    assert signal.getsignal(signal.SIGINT) == before


def test_in_a_thread_nothing_is_handled() -> None:
    """Only the main thread may; a command runs all the same."""
    seen: list[bool] = []

    def run() -> None:
        with all_like_ctrl_c(), interruptible() as interrupt:
            seen.append(interrupt())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False]


# A command with a temporary folder, whose work never ends.
WAITING = """
import sys
from pathlib import Path
from setwise import cli
from setwise.files import scratch_folder

def wait(options):
    with scratch_folder(Path(sys.argv[1])):
        print("ready", flush=True)
        sys.stdin.read()

cli.doctor._run = wait
sys.exit(cli.main(["doctor"]))
"""


@pytest.mark.parametrize("number", SIGNALS[1:], ids=lambda number: number.name)
def test_nothing_temporary_is_left(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert len(list(tmp_path.glob(f".{SCRATCH}.*"))) == 1
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "stopped\n")
    assert not list(tmp_path.iterdir())
