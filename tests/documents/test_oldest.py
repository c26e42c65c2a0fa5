"""The floor that is promised is the one that `make test-oldest` installs."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires, version

import pytest

from repository import ROOT
from setwise.kernels import dispatch


def _pinned(name: str) -> dict[str, str]:
    lines = (ROOT / name).read_text().splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


PINNED = _pinned("constraints-oldest.txt")
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


def test_the_checks_run_on_the_triton_of_their_pytorch() -> None:
    """Only a PyTorch for GPUs asks for one; here may be another than is pinned."""
    pinned = _pinned("constraints.txt")
    assert {"torch", "triton"} <= pinned.keys()
    asked = [one for one in requires("torch") or () if one.startswith("triton==")]
    if asked and version("torch").partition("+")[0] == pinned["torch"]:
        assert asked[0].startswith(f"triton=={pinned['triton']};")
