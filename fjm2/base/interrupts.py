"""Ctrl-C at the end of a program, when its result is decided."""

import signal
import threading


def end_at_interrupts() -> None:
    """From now on, let Ctrl-C end the process at once and without a word, unless it is ignored altogether.

    An exception in the middle of the interpreter's end would be printed, or even be lost: there may be no standard
    error any more.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
