"""Logs: an event's name, which does not change, and its fields, as text for people or JSON for machines."""

import json
import logging
import sys
import time
from datetime import UTC, datetime
from typing import Final

from .config import LogConfig

_ROOT: Final = "fjm2d"
_AGAIN_S: Final = 60.0


class Log:
    """Writes events of one part of the gateway."""

    __slots__ = ("_logger", "_told_at")

    def __init__(self, part: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{part}")
        self._told_at: dict[str, float] = {}

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def unexpected(self, error: BaseException | None, doing: str) -> None:
        """A mistake of ours, with its traceback; each kind once a minute at the most."""
        kind, now = type(error).__name__, time.monotonic()
        if now - self._told_at.get(kind, float("-inf")) >= _AGAIN_S:
            self._told_at[kind] = now
            self._logger.error("unexpected", extra={"fields": {"doing": doing, "error": str(error)}}, exc_info=error)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


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


def set_up(config: LogConfig) -> None:
    """Log to standard error. May be called again."""
    handler = logging.StreamHandler(sys.stderr)
    is_text = config.format == "text" or (config.format == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextLines() if is_text else JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_ROOT).setLevel(config.level.upper())
