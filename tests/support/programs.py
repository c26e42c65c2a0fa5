"""Programs that some tests need and pip does not have: Chromium and Blender."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def is_missing(reason: str) -> NoReturn:
    """Skip, which is seen in the summary; with SETWISE_TEST_EVERYTHING set, as in CI, fail."""
    if os.environ.get("SETWISE_TEST_EVERYTHING"):
        pytest.fail(reason)
    pytest.skip(reason)
