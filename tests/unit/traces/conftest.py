"""Fixtures of the tests of traces."""

import pytest

from fjm2.base.logs import Log
from fjm2.traces import environment, labels


@pytest.fixture(autouse=True)
def fresh_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the loggers, so that a test logs even warnings that an earlier test has logged already."""
    for module in (labels, environment):
        monkeypatch.setattr(module, "log", Log("fjm2.record"))
