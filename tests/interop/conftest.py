"""Fixtures of the interoperability tests: a peer built on libnorm, and cases that run in parallel."""

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
# Cases mostly wait for round trips and timers, so more of them run than there are cores. Other tests need some cores
# too.
JOBS = int(os.environ.get("FJM2_INTEROP_JOBS", "0")) or 3 * (os.cpu_count() or 1)
# Longer than the limits of any case. A test waits only for its own case, as earlier cases have ended by then.
CASE_TIMEOUT_S = 240.0


@pytest.fixture(scope="session")
def libnorm_peer(require_tool: Callable[[str], str]) -> str:
    """Return the path of the program built on libnorm. Build it if its source is newer."""
    binary = BUILD / SOURCE.stem
    if not binary.exists() or binary.stat().st_mtime < SOURCE.stat().st_mtime:
        _build(require_tool("gcc"), binary)
    return str(binary)


def _build(gcc: str, binary: Path) -> None:
    header = [gcc, "-E", "-include", "normApi.h", "-x", "c", os.devnull]
    if subprocess.run(header, capture_output=True, check=False).returncode != 0:
        pytest.skip("libnorm-dev is not installed (`make system-deps` installs it, as root)")
    binary.parent.mkdir(exist_ok=True)
    # Build the program under another name and rename it, so that two test runs at once both find a complete program.
    fresh = binary.with_name(f"{binary.name}.{os.getpid()}")
    argv = [gcc, "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(fresh), str(SOURCE), "-lnorm"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(argv)}\n{done.stderr}")
    fresh.replace(binary)


@pytest.fixture(scope="session")
def namespaces(require_tool: Callable[[str], str]) -> None:
    """Skip the tests if network namespaces cannot be made."""
    for tool in ("unshare", "nsenter", "ip", "iptables"):
        require_tool(tool)
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("network namespaces cannot be made here")


class Case(Protocol):
    """A test that can run in parallel with others. It is the value of the test's parameter `case`."""

    @property
    def is_slow(self) -> bool:
        """True if the case takes far longer than most.

        Slow cases start first, so that none of them runs alone at the end.
        """

    def run(self, libnorm_peer: str, directory: Path) -> None:
        """Run the case. Raise AssertionError if it fails.

        `directory` is empty, and used by this case only.
        """


class Cases:
    """The cases of all selected tests, in the order in which they start. At most `JOBS` run in parallel."""

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
        # The files of a failed case stay, for debugging.
        shutil.rmtree(place)

    def check(self, case: Case) -> None:
        """Wait for a case to end. If the case raised an exception, raise it here too."""
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
    """Start the cases of all selected tests. A test then waits for its own case."""
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
