"""Fixtures of the interoperability tests: a peer built on libnorm, and cases that run several at a time."""

import os
import shutil
import subprocess
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest

SOURCE = Path(__file__).with_name("libnorm_peer.c")
BUILD = Path(__file__).parents[2] / ".build"
# Cases mostly wait for round-trip times and timers, so there are more of them than cores; other tests want some, too.
JOBS = int(os.environ.get("FJM2_INTEROP_JOBS", "0")) or 3 * (os.cpu_count() or 1)
# Above what one case may take by its own limits; a test waits for its case only, earlier ones have ended.
CASE_TIMEOUT_S = 240.0


@pytest.fixture(scope="session")
def libnorm_peer(require_tool: Callable[[str], str]) -> str:
    """The path of the program on libnorm, built when its source is newer."""
    binary = BUILD / SOURCE.stem
    if not binary.exists() or binary.stat().st_mtime < SOURCE.stat().st_mtime:
        _build(require_tool("gcc"), binary)
    return str(binary)


def _build(gcc: str, binary: Path) -> None:
    header = [gcc, "-E", "-include", "normApi.h", "-x", "c", os.devnull]
    if subprocess.run(header, capture_output=True, check=False).returncode != 0:
        pytest.skip("libnorm-dev is not installed (`make system-deps` installs it, as root)")
    binary.parent.mkdir(exist_ok=True)
    # Made beside it and moved, so that two test runs at once both see a whole program.
    fresh = binary.with_name(f"{binary.name}.{os.getpid()}")
    argv = [gcc, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(fresh), str(SOURCE), "-lnorm"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(argv)}\n{done.stderr}")
    fresh.replace(binary)


@pytest.fixture(scope="session")
def namespaces(require_tool: Callable[[str], str]) -> None:
    """Skips where network namespaces cannot be made."""
    for tool in ("unshare", "nsenter", "ip", "iptables"):
        require_tool(tool)
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("network namespaces cannot be made here")


class Case(Protocol):
    """One test that can run beside others: the value of a test's parameter `case`."""

    @property
    def is_slow(self) -> bool:
        """True if it takes far longer than most. Slow cases start first, so that none is left alone at the end."""

    def run(self, libnorm_peer: str, directory: Path) -> None:
        """Raises AssertionError. `directory` is empty, and the case's own."""


class Cases:
    """Runs the cases of all selected tests at once, as many as there are jobs, in the order in which they come."""

    def __init__(self, libnorm_peer: str, directory: Path) -> None:
        self._libnorm_peer = libnorm_peer
        self._directory = directory
        self._pool = ThreadPoolExecutor(JOBS, thread_name_prefix="case")
        self._futures: dict[int, Future[None]] = {}

    def submit(self, case: Case) -> None:
        place = self._directory / str(len(self._futures))
        self._futures[id(case)] = self._pool.submit(self._run, case, place)

    def _run(self, case: Case, place: Path) -> None:
        place.mkdir()
        case.run(self._libnorm_peer, place)
        # Files of a failed case stay, for debugging.
        shutil.rmtree(place)

    def check(self, case: Case) -> None:
        """Wait for a case; raises what it raised."""
        self._futures[id(case)].result(CASE_TIMEOUT_S)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="session")
def cases(
    request: pytest.FixtureRequest,
    libnorm_peer: str,
    namespaces: None,  # noqa: ARG001
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Cases]:
    """Starts the cases of all selected tests; each test then asks for its own."""
    runs = Cases(libnorm_peer, tmp_path_factory.mktemp("interop"))
    selected = [case for case in map(_case_of, request.session.items) if case is not None]
    for case in sorted(selected, key=lambda case: not case.is_slow):
        runs.submit(case)
    yield runs
    runs.close()


def _case_of(item: pytest.Item) -> Case | None:
    if "cases" not in getattr(item, "fixturenames", ()):
        return None
    callspec = getattr(item, "callspec", None)
    case: Case | None = None if callspec is None else callspec.params.get("case")
    return case
