"""The floor that is promised is the one that `make test-oldest` installs."""

from __future__ import annotations

import re
import tomllib

import pytest

from repository import ROOT
from setwise.kernels import dispatch

PINNED = dict(
    line.split("==")
    for line in (ROOT / "constraints-oldest.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
FLOORS = dict(
    re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()  # type: ignore[union-attr]
    for requirement in [*PROJECT["dependencies"], *EXTRAS["metrics"], *EXTRAS["dev"]]
    if ">=" in requirement
)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


@pytest.mark.parametrize("name", PINNED)
def test_what_is_installed_is_the_floor(name: str) -> None:
    floor = _numbers(FLOORS[name])
    assert _numbers(PINNED[name])[: len(floor)] == floor


@pytest.mark.parametrize("requirement", [*PROJECT["dependencies"], *EXTRAS["metrics"]])
def test_every_floor_of_the_core_is_installed(requirement: str) -> None:
    assert requirement.split(">=")[0] in PINNED


def test_the_kernels_ask_for_no_newer_triton() -> None:
    assert _numbers(PINNED["triton"])[:2] == dispatch.OLDEST_TRITON
    assert f">={PINNED['torch'][:3]}" in (ROOT / "README.md").read_text()
