"""Needs of tests with a cell: network namespaces, FUSE, and the programs of tests/system."""

import ctypes.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [
    str(_TESTS / "system"),
    *(str(_TESTS / "system" / name) for name in ("faults", "keeper", "keeper/outboxes")),
]


@pytest.fixture(scope="session")
def require_namespaces() -> None:
    """Skip the test, with the reason, if network namespaces cannot be made."""
    from netns import skip_where_impossible

    skip_where_impossible("ip", "iptables", "sysctl")


@pytest.fixture(scope="session")
def require_fuse() -> None:
    """Skip the test, with the reason, if file systems in user space cannot be mounted."""
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("needs root and /dev/fuse, to mount a file system")
    if ctypes.util.find_library("fuse3") is None:
        pytest.skip("libfuse3 is not installed (`make system-deps` installs it, as root)")


@pytest.fixture(scope="session")
def eatmydata(require_tool: Callable[[str], str]) -> str:
    """Return the path of a program that runs others whose syncs do nothing."""
    return require_tool("eatmydata")
