"""Features that environment variables start: FJM2_TRACE_DIR records traces, FJM2_METRICS serves metrics.

`fjm2/__init__.py` installs `observe`, so that only programs that want them import the recorder and the server.
"""

import logging
import os

from fjm2.base.logs import Log
from fjm2.base.readings import DIRECTORY_VARIABLE, METRICS_VARIABLE, Counted

log = Log("fjm2.record")
metrics_log = Log("fjm2.metrics")


def observe(thing: Counted) -> None:
    """Start the recorder of traces and the server of metrics if environment variables ask for them.

    Called when an object with counters opens. Never raises: if recording fails, the program goes on.
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
