"""The recorder of traces that the environment variables FJM2_TRACE_DIR, FJM2_TRACE_INTERVAL and others ask for."""

import logging
import os
from typing import Final

from fjm2.base.errors import ConfigError
from fjm2.base.logs import Log
from fjm2.base.quantities import seconds_of
from fjm2.base.readings import DIRECTORY_VARIABLE, Counted

from .labels import Labels
from .recorder import INTERVAL_S, TraceRecorder, check_interval
from .writer import BYTES_MAX

INTERVAL_VARIABLE: Final = "FJM2_TRACE_INTERVAL"
BYTES_VARIABLE: Final = "FJM2_TRACE_BYTES_MAX"

log = Log("fjm2.record")

_recorder: TraceRecorder | None = None
_is_warned = False
_is_child = False
"""True if a process from which this one was forked records traces, too. The node then needs another name."""


def attach(thing: Counted) -> None:
    """Record an object with the recorder of the process, which the first call makes.

    Settings that are not valid are left out with a warning.
    """
    global _is_warned
    try:
        _the_recorder().attach(thing)
    except ConfigError as error:
        if not _is_warned:
            _is_warned = True
            text = f"{DIRECTORY_VARIABLE}: {error}; nothing is recorded: set it to a writable directory"
            log.tell(logging.WARNING, "directory_refused", text)


def _the_recorder() -> TraceRecorder:
    global _recorder
    if _recorder is None:
        labels = Labels.from_environment()
        _recorder = TraceRecorder(
            os.environ[DIRECTORY_VARIABLE],
            labels.of_process(f"{os.getpid()}") if _is_child else labels,
            interval_s=_interval_s(),
            bytes_max=_bytes_max(),
        )
    return _recorder


def _interval_s() -> float:
    text = os.environ.get(INTERVAL_VARIABLE, "").strip()
    if not text:
        return INTERVAL_S
    try:
        interval_s = seconds_of(text)
        check_interval(INTERVAL_VARIABLE, interval_s)
    except ConfigError as error:
        _refuse(INTERVAL_VARIABLE, f"{error}; using {INTERVAL_S} seconds")
    except ValueError as error:
        _refuse(INTERVAL_VARIABLE, f"{INTERVAL_VARIABLE}={text!r}: {error}; using {INTERVAL_S} s")
    else:
        return interval_s
    return INTERVAL_S


def _bytes_max() -> int:
    text = os.environ.get(BYTES_VARIABLE, "").strip()
    if not text:
        return BYTES_MAX
    if text.isascii() and text.isdigit() and int(text[:20]) > 0:
        return int(text[:20])
    _refuse(BYTES_VARIABLE, f"{BYTES_VARIABLE}={text!r}: expected bytes above 0; using {BYTES_MAX}")
    return BYTES_MAX


def _refuse(name: str, text: str) -> None:
    log.tell(logging.WARNING, "setting_refused", text, about=text, setting=name)


def _forget() -> None:
    global _recorder, _is_warned
    _recorder, _is_warned = None, False


def _after_fork() -> None:
    global _is_child
    _is_child = _is_child or _recorder is not None
    _forget()


os.register_at_fork(after_in_child=_after_fork)
