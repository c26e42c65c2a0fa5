"""Python files of a user's own, run so that what they define is known."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from setwise.cli.errors import CommandError
from setwise.cli.options import require_file


def load_file(option: str, file: Path) -> ModuleType:
    """Run a file as a module named after it; what is wrong in it is told with its place."""
    require_file(option, file)
    name = file.stem
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise CommandError(f"{option}: expected a file of Python, such as mine.py, got {file}")
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look for the module of a class by its name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise CommandError(f"{option}: {file} failed{_place(error, file)}: {error!r}") from error
    return module


def _place(error: BaseException, file: Path) -> str:
    """The last line of the file that was reached."""
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(file):
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f" in line {lines[-1]}" if lines else ""
