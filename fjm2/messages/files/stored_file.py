"""A received file on disk. It goes when nobody needs it any more, unless it was saved."""

import contextlib
import os
import secrets
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path


class ReceivedPath(type(Path())):  # type: ignore[misc]
    """The path of a received file. The file stays at least as long as this object."""

    file: "StoredFile | None" = None


class StoredFile:
    """A file that belongs to the messages that refer to it."""

    def __init__(self, path: str, size: int, name: str, delete: Callable[[str, int], None]) -> None:
        """Call `delete` with path and size when nobody needs the file any more, or it is saved elsewhere.

        It may be in any thread, and while memory is collected. At the end of the program it is not called.
        """
        self.path = path
        self.size = size
        self.name = name
        self.consumers = 1
        """Number of consumers that get it."""
        self._finalizer = weakref.finalize(self, delete, path, size)
        self._finalizer.atexit = False

    def held_path(self) -> Path:
        """Return the path, which keeps the file while anything refers to it. Paths made from it do not."""
        path = ReceivedPath(self.path)
        path.file = self
        return path

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
    """Copy a file. The target is whole, or as it was before. Only its owner may read it, as if it had been moved."""
    partial = target.with_name(f".fjm2-{secrets.token_hex(8)}.part")  # a name may be as long as the system allows
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        shutil.copyfile(source, partial)
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(partial)
        raise
