"""Fixtures and hooks for all tests: Hypothesis profiles, free ports, optional tools, and no skipping in CI."""

import atexit
import gc
import logging
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from inspect import isfunction
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

IN_CI = os.environ.get("CI") == "true"

# Examples are random on a developer's machine and in `make nightly`. In CI they are half as many, and the same on every
# run, so that a red build is caused by the change. Either way, a failure prints what is needed to reproduce it.
_SETTINGS = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fjm2", _SETTINGS)
settings.register_profile("fjm2-ci", _SETTINGS, derandomize=True, max_examples=50)
settings.register_profile("fjm2-fast", _SETTINGS, max_examples=20)
settings.load_profile("fjm2-ci" if IN_CI else "fjm2")

# Tests start hundreds of processes. Half of the cost would be compiling modules again, and starting threads for linear
# algebra, which the tests do not use.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False  # so that not every worker compiles the tests again, with their assertions rewritten
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Collecting thousands of tests makes hundreds of thousands of objects that stay. The garbage collector would visit them
# again and again, which takes as long as the rest of the collection. It is switched on when they are there.
gc.disable()

# A shell's background jobs ignore Ctrl-C, and their child processes inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The ports lie below the kernel's range of ephemeral ports.
_PORTS = range(20_000, 32_000)
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_some = Random()


@pytest.fixture
def port() -> int:
    """Return a free UDP port whose successor is free too. Tests running in parallel get different ports."""
    pairs = len(_PORTS) // 2 // _WORKERS
    while True:
        number = _PORTS[2 * (_WORKER * pairs + _some.randrange(pairs))]
        if _is_free(number) and _is_free(number + 1):
            return number


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


@pytest.fixture(autouse=True)
def levels_of_loggers() -> Iterator[None]:
    """Restore logger levels after each test: commands run inside the test process silence its loggers."""
    loggers = [logging.getLogger(name) for name in ("fjm2.norm", "fjm2.jms")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="module")
def keeping_trees() -> Iterator[None]:
    """Keep the garbage collector from the syntax trees that a module parses and keeps: visits take twice as long."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def require_tool() -> Callable[[str], str]:
    """Return a function that finds a program's path.

    If the program is missing, that function skips the test. In CI it fails the test instead.
    """

    def path_of(name: str) -> str:
        path = shutil.which(name)
        if path is not None:
            return path
        reason = f"{name} is not installed (`make system-deps` installs it, as root)"
        if IN_CI:
            pytest.fail(reason)
        pytest.skip(reason)

    return path_of


# Files that take longest, with their seconds on an idle machine. They run first, longest first, so that no worker is
# left with a long one at the end. `pytest --durations=0` shows the figures.
_LONG_FILES = {
    "spark": 150,
    "system/commands/test_jms_commands.py": 140,
    "system/doctor/test_doctor.py": 90,
    "report": 75,
    "system/commands/test_top.py": 70,
    "system/doctor": 60,
    "system/bench/test_bench_durable.py": 60,
    "system/bench/test_bench.py": 60,
    "sim/cell": 60,
    "docs/test_code_blocks.py": 60,
    "docs/test_docs_": 55,
    "system/commands": 50,
    "gateway/tunnel/test_tunnel_rate.py": 50,
    "interop": 45,
    "jms/outboxes": 40,
    "system/keeper": 40,
    "sim/test_progress.py": 35,
    "packaging/test_packages.py": 35,
    "sim/test_silence.py": 33,
    "system/bench": 30,
    "jms/keepers": 30,
    "system/norm/test_transfer.py": 27,
    "sim": 20,
    "jms": 20,
    "model": 20,
    "admin": 18,
    "examples": 15,
    "unit/test_": 20,
    "docs": 11,
}
_SHARING = ("tests/spark/", "tests/report/", "tests/docs/test_docs_", "tests/unit/test_")
"""Beginnings of the paths of test files that share something expensive: a Java virtual machine, a report, a site, or
syntax trees."""
_ON_ITS_OWN = "tests/spark/test_traces_mistakes.py"
"""A file in one of these places that does not use the shared fixture. It starts Spark in separate processes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests that take longest first."""
    places = [f"tests/{name}" for name in sorted(_LONG_FILES, key=_LONG_FILES.__getitem__, reverse=True)]

    @cache
    def place_of(file: str) -> int:
        return next((number for number, place in enumerate(places) if file.startswith(place)), len(places))

    items.sort(key=lambda item: place_of(item.nodeid.partition("::")[0]))


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make no cases of tests that are nightly without them: thousands, which would only be deselected."""
    if not isfunction(obj) or "not nightly" not in collector.config.option.markexpr:
        return None
    return [] if any(mark.name == "nightly" for mark in getattr(obj, "pytestmark", ())) else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """From the first test on, let the garbage collector look at new objects."""
    gc.freeze()
    gc.enable()
    atexit.register(gc.unfreeze)  # libraries of extensions complain of objects that stay until the interpreter's end


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadfile`, run files on one worker if they share an expensive fixture."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            place = next((each for each in _SHARING if nodeid.startswith(each)), None)
            return place if place and not nodeid.startswith(_ON_ITS_OWN) else super()._split_scope(nodeid)

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failure in CI, where everything should be installed."""
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a skipped file into a failure in CI."""
    report = yield
    if IN_CI and report.skipped:
        _fail(report)
    return report


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"skipped in CI: {reason}"
