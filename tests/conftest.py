"""Settings of the whole suite: the same examples on every run, no time limit on any of them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

# The suite's tensors are tiny: starting threads for them costs more than it saves. Of PyTorch,
# of NumPy's products, and of the processes that tests start. Set before they are imported.
os.environ["OMP_NUM_THREADS"] = "1"

import torch
from hypothesis import Phase, settings

from interpreter import speed_up
from longest_first import longest_first

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# The explain phase traces every line, which is slow; the failing example itself says enough.
PHASES = (Phase.explicit, Phase.generate, Phase.shrink)
settings.register_profile(
    "setwise", derandomize=True, deadline=None, max_examples=40, phases=PHASES
)
settings.load_profile("setwise")

# Without a GPU the Triton kernels run in Triton's interpreter. Set before anything imports Triton.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
    speed_up()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file() -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """No docstring here is an example: to look for some, all that tests share would be imported."""
    found = yield
    return [one for one in found if type(one) is pytest.Module]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Pages in a browser are of the second tier; the first reads what is written into them."""
    for item in items:
        if item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.slow)
    yield  # they are selected
    if processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):
        items[:] = longest_first([(str(item.path), item) for item in items], processes)


def pytest_runtest_setup() -> None:
    """Tests change what kernels do: none may play what another has recorded."""
    tapes = sys.modules.get("setwise.kernels.triton.tapes")
    if tapes is not None:
        tapes.forget()


def pytest_collection_finish() -> None:
    """What was imported stays: the collector of garbage need not look at it again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """At the end it does: extensions complain of what is left."""
    gc.unfreeze()


@pytest.fixture
def ot() -> Any:
    """POT. Imported where it is used: it takes two seconds of every process that collects tests."""
    import ot

    return ot


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The Chromium of this system; see `browser`.

    For one module at a time: while it runs, no other test could start an event loop.
    """
    from browser import started

    with started() as running:
        yield running
