"""Structured logs: an event's name, which does not change, and what there is to say of it.

Services say it in fields, as text for people, `12:00:00.123 info    peer_up peer=lyon`, or as JSON for machines, one
object a line. The library speaks in programs whose logs may have any form, and therefore in whole sentences that begin
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

AGAIN_S: Final = 60.0
"""What may come often a service tells no more often than this, with how many were left out."""
TELL_AGAIN_S: Final = 10.0
"""Likewise the library."""
_KEYS_MAX: Final = 1024


class Limiter:
    """Limits how often each kind of event is logged, and counts those left out. Remembers a bounded number of kinds.

    This is no token bucket: an event is logged once an interval, however long there was none before.
    """

    __slots__ = ("_clock", "_lock", "_told")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._told: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()
        """When each was told, and how many were not since then."""

    def __len__(self) -> int:
        return len(self._told)

    def left_out(self, key: Hashable, again_s: float) -> int | None:
        """It has come. None: it was told less than `again_s` ago; else tell it, and that so many were left out."""
        with self._lock:
            now = self._clock()
            told_at, left_out = self._told.get(key, (float("-inf"), 0))
            is_told = now - told_at >= again_s
            self._told[key] = (now, 0) if is_told else (told_at, left_out + 1)
            self._told.move_to_end(key)
            if len(self._told) > _KEYS_MAX:
                self._told.popitem(last=False)
        return left_out if is_told else None


class Log:
    """Writes the events of one part, as in `Log("fjm2d.peers")`."""

    __slots__ = ("_limiter", "_logger")

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logging.getLogger(name)
        self._limiter = Limiter(clock)

    # Of services.

    def debug(self, event: str, /, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def seldom(self, level: int, event: str, about: object, /, **fields: object) -> None:
        """What others may cause as often as they like: once a minute about each of them."""
        self._write_seldom(level, event, about, fields)

    def failure(self, event: str, error: BaseException | None, /, **fields: object) -> None:
        """A mistake of ours, with its traceback: once a minute of each kind."""
        self._write_seldom(logging.ERROR, event, type(error), {**fields, "error": str(error)}, error)

    # Of the library.

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
        """What happened, and what to do about it: once in ten seconds about each thing. With an error, its traceback.

        When it speaks again, it says how many were left out.
        """
        if not self._logger.isEnabledFor(level):
            return
        left_out = self._limiter.left_out((event, about), TELL_AGAIN_S)
        if left_out is not None:
            more = f" ({left_out} more like it)" if left_out else ""
            self._log(level, f"{event}: {one_line(text)}{more}", event, _counting(fields, left_out), error)

    @property
    def is_debugging(self) -> bool:
        """Whether `debug` writes anything."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def _write_seldom(
        self, level: int, event: str, about: object, fields: dict[str, object], error: BaseException | None = None
    ) -> None:
        left_out = self._limiter.left_out((event, about), AGAIN_S)
        if left_out is not None:
            self._write(level, event, _counting(fields, left_out), error)

    def _write(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            self._log(level, event, event, fields, error)

    def _log(
        self, level: int, text: str, event: str, fields: dict[str, object], error: BaseException | None = None
    ) -> None:
        self._logger.log(level, "%s", text, extra={"event": event, "fields": fields}, exc_info=error)


def _counting(fields: dict[str, object], left_out: int) -> dict[str, object]:
    return {**fields, "left_out": left_out} if left_out else fields


def one_line(text: str) -> str:
    """Without what a terminal would obey, or take for another line: strangers may have written parts of it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

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
    """Time, level, event and fields, or what is told of the event."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        said = {} if _has_text(record) else getattr(record, "fields", {})
        fields = "".join(f" {name}={_shown(value)}" for name, value in said.items())
        line = f"{moment} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _has_text(record: logging.LogRecord) -> bool:
    """Whether an event is told in a sentence."""
    message = record.getMessage()
    return getattr(record, "event", message) != message


def _shown(value: object) -> str:
    """Quoted where it is no plain word: nothing that a stranger sends can look like another line or field."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    is_plain = text.isascii() and text.isprintable() and text and not any(c in text for c in ' "=\\')
    return text if is_plain else json.dumps(text)


def set_up(service: str, level: str, form: str) -> None:
    """Log to standard error: of the service from this level on, of its libraries warnings. May be called again.

    `form` is "text", "json", or "auto", which is text on a terminal.
    """
    handler = logging.StreamHandler(sys.stderr)
    is_text = form == "text" or (form == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextLines() if is_text else JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(service).setLevel(level.upper())
