"""What a command says while it does something of which no parts can be counted."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from setwise.cli.stages import stage


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_sees_it_go_on_and_others_a_line(terminal: bool) -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=60, color_system=None)
    with stage("thinking of [all] states", console):
        pass
    assert ("thinking of [all] states 0:00:00" in written.getvalue()) is terminal
    assert bool(written.getvalue()) is terminal
    with stage("thinking", console) as told:
        told("learning from [all] states")
    said = written.getvalue()
    if terminal:
        assert "learning from [all] states 0:00:00" in said
        with stage("a long way " * 9, console):  # broken into lines
            pass
        assert written.getvalue().removeprefix(said).count(" 0:00:00") > 0
    else:
        assert said == "learning from [all] states\n"


def test_what_goes_wrong_within_is_not_hidden() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with pytest.raises(KeyboardInterrupt), stage("thinking", console):
        raise KeyboardInterrupt
