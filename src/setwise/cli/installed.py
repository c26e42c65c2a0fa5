"""What is installed of what the library asks for: its requirements, read from its own metadata."""

from __future__ import annotations

import json
import platform
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, metadata, version
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlparse

from setwise.outside import one_line

State = Literal["works", "missing", "broken"]

# Packages whose modules have other names than they have.
MODULES = {
    "lapx": "lap",
    "mkdocs-material": "material",
    "mkdocstrings-python": "mkdocstrings_handlers.python",
    "pillow": "PIL",
    "pot": "ot",
    "pymdown-extensions": "pymdownx",
    "scikit-learn": "sklearn",
}
# Not for importing: stubs for a type checker, a program, and one that is under the GPL, which is
# run as a program and never loaded.
NOT_IMPORTED = ("types-psutil", "ruff", "kstar-planner")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for, and the command or advice that helps where it is not well."""

    name: str
    state: State
    detail: str
    remedy: str | None = None


@dataclass(frozen=True)
class Requirement:
    """A package, the oldest version that will do, and the extra that asks for it."""

    package: str
    oldest: str
    extra: str | None  # None: the core


def requirements() -> list[Requirement]:
    """All that this system needs for the library and for each of its extras."""
    found = []
    for line in metadata("setwise").get_all("Requires-Dist") or []:
        stated, _, marker = line.partition(";")
        name, oldest = re.match(r"[\w.-]+", stated), re.search(r">=\s*([\w.]+)", stated)
        assert name is not None
        assert oldest is not None, f"{line}: expected package>=version"
        system = re.search(r"platform_system == ['\"](\w+)['\"]", marker)
        if system is None or system[1] == platform.system():
            extra = re.search(r"extra == ['\"]([\w-]+)['\"]", marker)
            found.append(Requirement(name[0].lower(), oldest[1], extra[1] if extra else None))
    return found


def find_extra(name: str, packages: list[Requirement]) -> Finding:
    """Whether everything an extra asks for is there, new enough, and can be imported."""
    found = [find_package(package) for package in packages]
    ill = [package for package in found if package.state != "works"]
    if not ill:
        return Finding(name, "works", ", ".join(f"{one.name} {one.detail}" for one in found))
    detail = "; ".join(f"{one.name}: {one.detail}" for one in ill)
    broken = [package for package in ill if package.state == "broken"]
    if broken:
        return Finding(name, "broken", detail, " && ".join(str(one.remedy) for one in broken))
    return Finding(name, "missing", detail, install_command(name))


def find_package(wanted: Requirement) -> Finding:
    """Whether a package is installed, new enough, and can be imported."""
    name = wanted.package
    try:
        found = version(name)
    except PackageNotFoundError:
        return Finding(name, "missing", "not installed", pip(f"{name}>={wanted.oldest}"))
    if _numbers(found) < _numbers(wanted.oldest):
        detail = f"{found} is too old, {wanted.oldest} is needed"
        return Finding(name, "missing", detail, pip(f"{name}>={wanted.oldest}"))
    if name not in NOT_IMPORTED:
        module = _module(name)
        try:
            import_module(module)
        except Exception as error:  # a broken package may raise anything
            # Reinstalling a package alone does not bring another one that it needs.
            needs_another = getattr(error, "name", module) != module
            options = [] if needs_another else ["--force-reinstall", "--no-deps"]
            again = pip(*options, f"{name}=={found}")
            return Finding(name, "broken", f"{found} cannot be imported: {one_line(error)}", again)
    return Finding(name, "works", found)


def install_command(extra: str) -> str:
    """The command that adds an extra to this installation, wherever it came from."""
    source = json.loads(distribution("setwise").read_text("direct_url.json") or "{}")
    if "dir_info" not in source:
        return pip(f"setwise[{extra}]")
    folder = Path(unquote(urlparse(source["url"]).path))
    editable = ["--editable"] if source["dir_info"].get("editable") else []
    return pip(*editable, f"{folder}[{extra}]")


def extra_with(module: str, preferred: str) -> str:
    """The extra that brings a module: the preferred one, unless others do and it does not."""
    try:
        wanted = requirements()
    except PackageNotFoundError:  # imported from its source, and not installed at all
        return preferred
    bringing = [one.extra for one in wanted if one.extra and _module(one.package) == module]
    return preferred if preferred in bringing or not bringing else bringing[0]


def for_this_installation(message: str) -> str:
    """A message with the commands that it names as they have to be typed here.

    The library speaks of ``pip install 'setwise[planning]'``. That is right for what came from
    PyPI; a clone is installed from where it lies.
    """

    def fitting(found: re.Match[str]) -> str:
        try:
            return install_command(found[1])
        except PackageNotFoundError:  # imported from its source, and not installed at all
            return found[0]

    return re.sub(r"pip install 'setwise\[([\w,-]+)\]'", fitting, message)


def pip(*arguments: str) -> str:
    """A command that installs into this very Python."""
    python = "python" if shutil.which("python") == sys.executable else sys.executable
    return shlex.join([python, "-m", "pip", "install", *arguments])


def _module(package: str) -> str:
    return MODULES.get(package, package.replace("-", "_"))


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version, for comparing: 2.13.0+cpu is (2, 13, 0)."""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()
