"""Work whose parts nobody can count: what is being done, and for how long already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from setwise.cli.streams import flush

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def stage(text: str, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Within, a terminal shows the text and the time that has gone; print before or after.

    Call what it gives where something begins after which nothing may come for long: a terminal
    shows that text instead, and elsewhere it is a line.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    flush()  # so that what was said before can be read meanwhile, also in a file
    shown_on = console or Console(stderr=True)
    if not shown_on.is_terminal:
        yield lambda text: shown_on.print(text, soft_wrap=True, highlight=False, markup=False)
        return
    columns = (  # of which the text alone may be broken into lines
        SpinnerColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.description}", markup=False, table_column=Column()),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=shown_on, transient=True, refresh_per_second=4) as shown:
        task = shown.add_task(text, total=None)
        yield lambda text: shown.update(task, description=text, refresh=True)
