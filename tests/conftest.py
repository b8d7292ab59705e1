"""What all tests share: Hypothesis's profiles, tools that may be missing, and no skipping in CI."""

import os
import shutil
from collections.abc import Callable, Generator

import pytest
from hypothesis import HealthCheck, settings

IN_CI = os.environ.get("CI") == "true"

# Examples are chosen at random where people work, and are the same on every run in CI, where a red build has to mean
# the change. Either way a failure prints what reproduces it.
_SETTINGS = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fjm2", _SETTINGS)
settings.register_profile("fjm2-ci", _SETTINGS, derandomize=True)
settings.load_profile("fjm2-ci" if IN_CI else "fjm2")


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """A function that finds a program, or else skips the test. In CI a missing one fails the test."""

    def path_of(name: str) -> str:
        path = shutil.which(name)
        if path is not None:
            return path
        reason = f"{name} is not installed (`make system-deps` installs it, as root)"
        if IN_CI:
            pytest.fail(reason)
        pytest.skip(reason)

    return path_of


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test that skips has failed: nothing is missing there but by mistake."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """The same for files that skip as a whole."""
    report = yield
    if IN_CI and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"skipped in CI: {reason}"
