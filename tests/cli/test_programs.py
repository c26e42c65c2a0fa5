"""A program that is missing is no failure for whoever tries the library, and is one in CI."""

from __future__ import annotations

import pytest

from programs import is_missing


def test_skipped_unless_everything_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SETWISE_TEST_EVERYTHING", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no such program"):
        is_missing("no such program")
    monkeypatch.setenv("SETWISE_TEST_EVERYTHING", "1")
    with pytest.raises(pytest.fail.Exception, match="no such program"):
        is_missing("no such program")
