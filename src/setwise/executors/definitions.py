"""Work as bytes, with files of a user's own for machines that do not have them.

What a file defines, such as a task or a loss, is found by a name that is registered when the file
runs. So the text of the file travels with the work, and runs there first, once in a process.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.abc import ExecutionLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any, ClassVar

import setwise
from setwise.executors.executor import Work

Text = tuple[str, str]  # of a module, and where it was read
_MAIN = "__mp_main__"  # what multiprocessing calls a script that is not run as one


def pack(work: Work, dumps: Callable[[Any], bytes] = pickle.dumps) -> bytes:
    """The function and the arguments of work, for `unpack` in another process of this version.

    ``dumps`` may be that of cloudpickle, which knows functions without a name.
    """
    texts = texts_of(work.modules)
    return pickle.dumps((setwise.__version__, texts, dumps((work.function, work.arguments))))


def unpack(content: bytes) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """What `pack` was given; only from one's own processes, for it may run anything."""
    version, texts, rest = pickle.loads(content)
    if version != setwise.__version__:
        raise ValueError(
            f"there is setwise {setwise.__version__}, the command is of {version}; install the same"
        )
    import_texts(texts)
    function, arguments = pickle.loads(rest)
    return function, arguments


def texts_of(modules: Iterable[str]) -> dict[str, Text | None]:
    """The text of each module that is one file; None of what has to be installed over there."""
    return {_MAIN if name == "__main__" else name: _text(name) for name in modules}


def import_texts(texts: Mapping[str, Text | None]) -> None:
    """Import all of these modules, in any order, as they may import each other."""
    _Texts.known.update(texts)
    if not any(isinstance(finder, _Texts) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Texts())  # before files of the same names
    for name in texts:
        importlib.import_module(name)


def _text(name: str) -> Text | None:
    file = getattr(sys.modules[name], "__file__", None)
    if "." in name or file is None or "site-packages" in Path(file).parts:
        return None
    return Path(file).read_text(encoding="utf-8"), str(Path(file).absolute())


class _Texts(MetaPathFinder, ExecutionLoader):
    """Finds modules by their texts; their ``__file__`` is where that was read."""

    known: ClassVar[dict[str, Text | None]] = {}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if self.known.get(fullname) is None:
            return None
        return spec_from_loader(fullname, self)

    def get_source(self, fullname: str) -> str:
        return self._known(fullname)[0]

    def get_filename(self, fullname: str) -> str:
        return self._known(fullname)[1]

    def _known(self, fullname: str) -> Text:
        text = self.known[fullname]
        assert text is not None
        return text
