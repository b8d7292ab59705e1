"""Where programs of our own in other languages are kept once they are built."""

import os
from pathlib import Path


def place(name: str) -> Path:
    """In the working copy, or else where programs keep what they can make again."""
    working_copy = Path(__file__).parents[2]
    if (working_copy / "setup.cfg").exists():
        return working_copy / ".build" / name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "fjm2-bench" / name


def is_fresh(program: Path, source: Path) -> bool:
    """Whether it is there, and made of the source as it is."""
    return program.exists() and program.stat().st_mtime >= source.stat().st_mtime
