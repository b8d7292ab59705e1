"""Processor time and memory of this process: their instruments, and a function that measures them."""

import mmap
import time
from typing import Final

from fjm2.base.instruments import counter, gauge

CPU: Final = "cpu_s"
RSS: Final = "rss_bytes"
PROCESS_INSTRUMENTS: Final = (
    counter(None, "s", "Processor time that the process used, in user and kernel mode.", trace=CPU, is_column=True),
    gauge(None, "bytes", "Memory of the process that is resident in RAM.", trace=RSS, is_column=True),
)
"""Instruments of the process. Only one series of a process has them."""


def cpu_and_memory() -> tuple[float, int | None]:
    """Return the processor time in seconds and the resident memory in bytes; None where the kernel does not tell it."""
    try:
        with open("/proc/self/statm", "rb") as file:
            rss_bytes = int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return time.process_time(), None
    return time.process_time(), rss_bytes
