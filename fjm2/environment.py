"""Act on the environment: FJM2_TRACE_DIR records traces of any program, FJM2_METRICS serves its metrics.

`fjm2/__init__.py` installs this, so that neither the recorder nor the server is imported by programs that want neither.
"""

import logging
import os

from fjm2.base.logs import Log
from fjm2.base.readings import DIRECTORY_VARIABLE, METRICS_VARIABLE, Counted

log = Log("fjm2.record")
metrics_log = Log("fjm2.metrics")


def observe(thing: Counted) -> None:
    """Start what the environment asks for, when something that counts opens. Never raises: recording may fail, but not
    the program that is recorded.
    """
    if os.environ.get(METRICS_VARIABLE):
        try:
            from fjm2.metrics import serve_environment

            serve_environment()
        except Exception as error:
            text = f"{METRICS_VARIABLE}: {error}; no metrics are served: give each program an address of its own"
            metrics_log.tell(logging.WARNING, "metrics_not_served", text, about=str(error))
    if os.environ.get(DIRECTORY_VARIABLE):
        try:
            from fjm2.traces.environment import attach

            attach(thing)
        except Exception as error:
            text = f"no traces are recorded: {error!r}; unset {DIRECTORY_VARIABLE} to do without"
            log.tell(logging.WARNING, "recording_failed", text, about=type(error).__name__, error=error)
