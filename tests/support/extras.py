"""An environment with one extra and nothing else, as far as imports can tell.

Packages that the metadata of the installed ones do not lead to from the extra cannot be imported.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

_HIDE = """
import sys
from importlib.machinery import PathFinder

class Others(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in {modules!r}
        return None if hidden else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *context):
        for found in super().find_distributions(*context):
            if found.metadata["Name"].lower().replace("_", "-").replace(".", "-") in {packages!r}:
                yield found

sys.meta_path[sys.meta_path.index(PathFinder)] = Others
"""


def closure(*extras: str) -> set[str]:
    """The packages that ``setwise[extra,...]`` brings, by what those installed say they need."""
    found: set[str] = set()
    waiting = [("setwise", frozenset(extras))]
    while waiting:
        name, asked = waiting.pop()
        found.add(name)
        try:
            needed = distribution(name).requires or []
        except PackageNotFoundError:  # of another system
            continue
        for line in needed:
            stated, _, marker = line.partition(";")
            extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
            if extra and extra[1] not in asked:
                continue
            package = re.match(r"[\w.-]+", stated)
            assert package is not None
            more = re.search(r"\[([\w,-]+)\]", stated)
            wanted = frozenset(more[1].split(",")) if more else frozenset()
            following = (_normal(package[0]), wanted)
            if following[0] not in found or wanted:
                waiting.append(following)
    return found


# Packages that another brings in folders of its own.
CARRIED = {"ray": {"colorama", "psutil"}}


@cache
def _modules() -> Mapping[str, list[str]]:
    """Those of all packages that are installed, which takes a second to find out."""
    return packages_distributions()


def blocked(*extras: str) -> set[str]:
    """The modules of all other packages."""
    there = closure(*extras)
    there |= {carried for package in there for carried in CARRIED.get(package, ())}
    return {
        module
        for module, packages in _modules().items()
        if not {_normal(package) for package in packages} & there
    }


def run_with_extra(extra: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Python code in a process of its own, where nothing but the extra is installed."""
    hide = _HIDE.format(modules=blocked(extra), packages=closure(extra))
    return subprocess.run(
        [sys.executable, "-c", hide + code], capture_output=True, text=True, cwd=folder
    )


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
