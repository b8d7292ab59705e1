"""Ctrl-C at the beginning of a program, when there is nothing to clean up, and at its end, when its result is decided.

An exception in the middle of an import, or of the interpreter's end, would be printed, or lost: Python cannot raise it
everywhere, and at the end there may be no standard error any more.
"""

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Iterator
from typing import Final

INTERRUPTED: Final = 130
"""Exit status of a program that Ctrl-C ended: 128 plus the number of SIGINT."""


def _can_set() -> bool:
    """Return True if this thread may set signal handlers, and Ctrl-C is not ignored altogether."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Use this around the imports of a program: Ctrl-C ends the process at once and without a word, and the garbage
    collector never looks at what they make, which stays. Its visits take a quarter of the time of a program's start."""
    with _uncollected():
        if not _can_set():
            yield
            return
        before = signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def end_at_interrupts() -> None:
    """From now on, let Ctrl-C end the process at once and without a word."""
    if _can_set():
        signal.signal(signal.SIGINT, signal.SIG_DFL)
