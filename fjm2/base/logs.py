"""Structured logs: each record has the name of an event, which never changes, and fields.

Services log fields, either as text for people, `12:00:00.123 info    peer_up peer=lyon`, or as JSON for machines, one
object a line. The library runs in programs whose logs may have any form. It therefore logs whole sentences that begin
with the name: `buffer_small: the kernel gives ...`. Either way the record has `event` and `fields`.
"""

import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from threading import Lock
from typing import Final

from .quantities import one_line

AGAIN_S: Final = 60.0
"""Shortest interval, in seconds, between two records of a service about the same event, if others can cause the event.
Each record says how many events were left out since the record before."""
TELL_AGAIN_S: Final = 10.0
"""Shortest interval, in seconds, between two records of the library about the same event. It is short, as a program may
run for seconds only."""
_KEYS_MAX: Final = 1024
"""Greatest number of kinds of events remembered. It is needed because strangers can cause any number of kinds."""


class Limiter:
    """Limits how often each kind of event is logged, and counts the events left out. The number of kinds remembered is
    bounded.

    Unlike a token bucket, a limiter allows no burst after a silence: each kind is logged at most once an interval.
    """

    __slots__ = ("_clock", "_lock", "_logged")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._logged: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        """Time of the latest record of each kind of event, and the number of events left out since."""

    def __len__(self) -> int:
        return len(self._logged)

    def left_out(self, key: Hashable, again_s: float) -> int | None:
        """Count an event. Return the number of events left out before it, or None if the event itself is to be left
        out.

        An event is left out if its kind, `key`, was last logged less than `again_s` seconds ago.
        """
        with self._lock:
            now = self._clock()
            logged_at, left_out = self._logged.get(key, (float("-inf"), 0))
            is_logged = now - logged_at >= again_s
            self._logged[key] = (now, 0) if is_logged else (logged_at, left_out + 1)
            self._logged.move_to_end(key)
            if len(self._logged) > _KEYS_MAX:
                self._logged.popitem(last=False)
        return left_out if is_logged else None


class Log:
    """Logs the events of one part of FJM2, as in `Log("fjm2d.peers")`."""

    __slots__ = ("_limiter", "_logger")

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logging.getLogger(name)
        self._limiter = Limiter(clock)

    # For services.

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def seldom(self, level: int, event: str, about: object, /, **fields: object) -> None:
        """Log an event that others can cause as often as they like. It is logged once a minute for each value of
        `about`."""
        self._write_seldom(level, event, about, fields)

    def failure(self, event: str, error: BaseException | None, /, **fields: object) -> None:
        """Log an error in our own code with its traceback. It is logged once a minute for each type of exception."""
        self._write_seldom(logging.ERROR, event, type(error), {**fields, "error": str(error)}, error)

    # For the library.

    def tell(
        self,
        level: int,
        event: str,
        text: str,
        /,
        about: Hashable = None,
        error: BaseException | None = None,
        **fields: object,
    ) -> None:
        """Log a sentence that says what happened and what to do about it: once in ten seconds for each event and value
        of `about`.

        The record has the traceback of `error`, and the number of events left out since the last record.
        """
        if not self._logger.isEnabledFor(level):
            return
        left_out = self._limiter.left_out((event, about), TELL_AGAIN_S)
        if left_out is not None:
            more = f" ({left_out} more like it)" if left_out else ""
            self._log(level, f"{event}: {one_line(text)}{more}", event, _with_left_out(fields, left_out), error)

    @property
    def is_debugging(self) -> bool:
        """True if `debug` logs anything."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def _write_seldom(
        self, level: int, event: str, about: object, fields: dict[str, object], error: BaseException | None = None
    ) -> None:
        left_out = self._limiter.left_out((event, about), AGAIN_S)
        if left_out is not None:
            self._write(level, event, _with_left_out(fields, left_out), error)

    def _write(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            self._log(level, event, event, fields, error)

    def _log(
        self, level: int, text: str, event: str, fields: dict[str, object], error: BaseException | None = None
    ) -> None:
        self._logger.log(level, "%s", text, extra={"event": event, "fields": fields}, exc_info=error)


def _with_left_out(fields: dict[str, object], left_out: int) -> dict[str, object]:
    return {**fields, "left_out": left_out} if left_out else fields


class JsonLines(logging.Formatter):
    """Formats each record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "part": record.name,
            "event": getattr(record, "event", record.getMessage()),
            **({"text": record.getMessage()} if _has_text(record) else {}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextLines(logging.Formatter):
    """Formats each record as time, level, event and fields, or as time, level and sentence."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields_shown = {} if _has_text(record) else getattr(record, "fields", {})
        fields = "".join(f" {name}={_shown(value)}" for name, value in fields_shown.items())
        line = f"{moment} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _has_text(record: logging.LogRecord) -> bool:
    """Return True if the record is a sentence, which the library logs, and not just the name of an event."""
    message = record.getMessage()
    return getattr(record, "event", message) != message


def _shown(value: object) -> str:
    """Quote a value unless it is a plain word, so that nothing from a stranger looks like another line or field."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    is_plain = text.isascii() and text.isprintable() and text and not any(c in text for c in ' "=\\')
    return text if is_plain else json.dumps(text)


def set_up(service: str, level: str, form: str) -> None:
    """Set up logs on standard error: all records of the service from `level` on, and warnings and errors of all
    libraries.

    `form` is "text", "json" or "auto". "auto" is text on a terminal, and JSON elsewhere. May be called again.
    """
    handler = logging.StreamHandler(sys.stderr)
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextLines() if is_text else JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(service).setLevel(level.upper())
