"""The folder that keeps the compiled programs of the peers."""

import os
from pathlib import Path


def path_of(name: str) -> Path:
    """Return the path of a compiled program: in the working copy, or else in the user's cache."""
    working_copy = Path(__file__).parents[2]
    if (working_copy / "setup.cfg").exists():
        return working_copy / ".build" / name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fjm2-bench" / name


def is_fresh(program: Path, source: Path) -> bool:
    """Return True if the program exists and is newer than its source."""
    return program.exists() and program.stat().st_mtime >= source.stat().st_mtime
