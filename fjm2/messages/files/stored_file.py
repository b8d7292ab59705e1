"""A received file on disk. It goes when nobody needs it any more, unless it was saved."""

import contextlib
import os
import secrets
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path


class StoredFile:
    """A file that belongs to the messages that refer to it."""

    def __init__(self, path: str, size: int, name: str, on_gone: Callable[[int], None]) -> None:
        """Call `on_gone` with the size when the file is deleted, or saved elsewhere. It may be in any thread."""
        self.path = path
        self.size = size
        self.name = name
        self.consumers = 1
        """Number of consumers that get it."""
        self._finalizer = weakref.finalize(self, _remove, path, size, on_gone)

    def save(self, target: Path) -> None:
        """Move the file, or copy it if others need it, too, or if the target is on another file system."""
        if self.consumers == 1 and self._finalizer.alive:
            with contextlib.suppress(OSError):
                os.rename(self.path, target)
                self.path = str(target)
                self._finalizer()
                return
        copy(self.path, target)


def copy(source: str, target: Path) -> None:
    """Copy a file. The target is whole, or as it was before."""
    partial = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        shutil.copyfile(source, partial)
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise


def _remove(path: str, size: int, on_gone: Callable[[int], None]) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
    on_gone(size)
