"""Logs: an event's name and its fields, as text for people or JSON for machines."""

import json
import logging
import sys
from datetime import UTC, datetime

from .config import AdminConfig


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextLines(logging.Formatter):
    """Time, level, event, fields."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S")
        fields = " ".join(f"{name}={_shown(value)}" for name, value in getattr(record, "fields", {}).items())
        line = f"{time} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _shown(value: object) -> str:
    """Quoted, with escapes, unless it is a plain word: nothing that a stranger sends can forge a line."""
    text = str(value)
    return text if text.isascii() and text.replace("-", "a").replace(".", "a").isalnum() else json.dumps(text)


def set_up(config: AdminConfig) -> None:
    """Log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    is_text = config.log_format == "text" or (config.log_format == "auto" and sys.stderr.isatty())
    handler.setFormatter(TextLines() if is_text else JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("fjm2admin").setLevel(config.log_level.upper())
    # Its access log is ours; what it says of its own beginning and end is said better.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
