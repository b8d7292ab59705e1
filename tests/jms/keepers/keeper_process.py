"""A keeper as a process, for tests of both APIs."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_DEADLINE_S = 20.0
"""Longest wait for a keeper that founds a cell of one, which takes 3 s."""


@contextlib.contextmanager
def keeping(directory: Path, uri: str) -> Iterator[None]:
    """Run a keeper, and wait until it serves. Kill it at the end."""
    options = ("--replicas", "1", "--uri", uri, "--store-bytes", str(16 << 20), "--json")
    keeper = subprocess.Popen(
        [sys.executable, "-m", "fjm2", "keep", str(directory), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert keeper.stdout is not None
    try:
        ends_at = time.monotonic() + _DEADLINE_S
        for line in keeper.stdout:
            assert time.monotonic() < ends_at
            if '"serving"' in line:
                break
        else:
            raise AssertionError("the keeper ended before it served")
        yield
    finally:
        keeper.kill()
        keeper.wait(_DEADLINE_S)
        keeper.stdout.close()
