"""Structured logs of services: an event's name, which does not change, and its fields.

As text for people, `12:00:00.123 info    peer_up peer=lyon`, or as JSON for machines, one object a line.
"""

import json
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

AGAIN_S: Final = 60.0
"""What may come often is told no more often than this, with how many were left out."""
_KEYS_MAX: Final = 1024


class Log:
    """Writes the events of one part of a service, as in `Log("fjm2d.peers")`."""

    __slots__ = ("_clock", "_logger", "_told")

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logging.getLogger(name)
        self._clock = clock
        self._told: OrderedDict[tuple[str, object], tuple[float, int]] = OrderedDict()
        """When each was told, and how many were not since then."""

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

    @property
    def is_debugging(self) -> bool:
        """Whether `debug` writes anything."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def _write_seldom(
        self, level: int, event: str, about: object, fields: dict[str, object], error: BaseException | None = None
    ) -> None:
        now = self._clock()
        told_at, left_out = self._told.get((event, about), (float("-inf"), 0))
        is_told = now - told_at >= AGAIN_S
        self._told[event, about] = (now, 0) if is_told else (told_at, left_out + 1)
        self._told.move_to_end((event, about))
        if len(self._told) > _KEYS_MAX:
            self._told.popitem(last=False)
        if is_told:
            self._write(level, event, {**fields, "left_out": left_out} if left_out else fields, error)

    def _write(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields}, exc_info=error)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "part": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextLines(logging.Formatter):
    """Time, level, event and fields."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {name}={_shown(value)}" for name, value in getattr(record, "fields", {}).items())
        line = f"{moment} {record.levelname.lower():7} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


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
