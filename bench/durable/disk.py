"""The disk alone: the time that a commit of one message takes, by `fjm2 keep bench`."""

import json
import subprocess
import sys

from ..peers.base import PeerTimeoutError
from .roles import RoleOptions
from .trial import Awaited

DISK = "disk"
"""Name of the disk in tables."""
_SECONDS = 2.0


def measure_disk(options: RoleOptions) -> Awaited:
    """Measure commits of one message, one after another, without network or other processes."""
    settings = ["--size", str(options.size), "--duration", f"{_SECONDS:g}s", "--json"]
    command = [sys.executable, "-m", "fjm2", "keep", "bench", str(options.folder), *settings]
    done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout_s, check=False)
    if done.returncode != 0:
        raise PeerTimeoutError(f"fjm2 keep bench: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    times = {name: found[f"commit_{name}_s"] * 1e6 for name in ("p50", "p99", "max")}
    return Awaited(count=found["commits"], p50_us=times["p50"], p99_us=times["p99"], max_us=times["max"])
