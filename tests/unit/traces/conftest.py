"""Fixtures of the tests of traces."""

import pytest

from fjm2.base.logs import Log
from fjm2.traces import environment, labels


@pytest.fixture(autouse=True)
def fresh_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log again what an earlier test was warned of."""
    for module in (labels, environment):
        monkeypatch.setattr(module, "log", Log("fjm2.record"))
