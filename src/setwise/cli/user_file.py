"""Python files of users, run so that what they define is registered and found by its name."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from importlib.machinery import SOURCE_SUFFIXES, SourceFileLoader
from pathlib import Path
from types import ModuleType

from setwise.cli.errors import CommandError
from setwise.cli.options import require_file


class _Loader(SourceFileLoader):
    """Keeps no compiled copy: on a full disk Python may write half of one, and fails to read it."""

    def set_data(self, path: str, data: object, *, _mode: int = 0o666) -> None:
        """Where Python would write it."""


def run_file(option: str, path: Path) -> ModuleType:
    """Import a file, wherever it lies, as the module of its name; one that is imported stays.

    ``option`` names the argument it was given by.
    """
    require_file(option, path)
    known = sys.modules.get(path.stem)
    if known is not None and _same(known, path):
        return known
    if known is not None or path.stem in sys.stdlib_module_names:
        raise CommandError(f"{option}: {path}: a module {path.stem} is there already; rename it")
    if path.suffix not in SOURCE_SUFFIXES:
        raise CommandError(f"{option}: expected a Python file, got {path}")
    loader = _Loader(path.stem, str(path.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where dataclasses look for what they are made in
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[path.stem]
        place = f"{path}{_line(error, path)}"
        raise CommandError(f"{option}: {place}: {type(error).__name__}: {error}") from error
    return module


def _line(error: BaseException, path: Path) -> str:
    """The last line of the file that was reached."""
    steps = traceback.extract_tb(error.__traceback__)
    lines = [step.lineno for step in steps if Path(step.filename) == path.absolute()]
    return f", line {lines[-1]}" if lines else ""


def _same(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path.resolve()
