"""Every exception of FJM2.

FJM2Error
├── ConfigError          an invalid setting, with its value and what was expected (also a ValueError)
├── CaptureError         a file that is not a packet capture
├── JournalError         a journal whose disk has failed, so that it takes nothing more
├── NormError            NORM engine and codec
│   └── WireError        bytes that are not a NORM message: what is wrong, and at which offset
└── JMSError             errors of messaging; `fjm2.messages.errors` has the rest of this branch
"""

from typing import Any, Self

__all__ = ["CaptureError", "ConfigError", "FJM2Error", "JournalError", "NormError", "WireError"]


class FJM2Error(Exception):
    """Base of every exception that FJM2 raises on purpose. All of them can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[FJM2Error], arguments: tuple[object, ...], attributes: dict[str, object]) -> FJM2Error:
    """Rebuild an exception without calling its constructor, whose parameters may differ from `args`."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class ConfigError(FJM2Error, ValueError):
    """An invalid setting. The text has the setting, its value and what was expected."""

    setting: str | None = None
    """Name of the setting; None if the error is about something else."""
    expected: str = ""
    """Values that the setting may have; empty if `setting` is None."""

    @classmethod
    def of(cls, setting: str, value: object, expected: str) -> Self:
        """Return the error of a setting with a value that it may not have."""
        error = cls(f"{setting}={value}: expected {expected}")
        error.setting, error.expected = setting, expected
        return error


class CaptureError(FJM2Error):
    """A file that is not a packet capture, or a capture of a kind that is not supported."""


class JournalError(FJM2Error):
    """A journal whose disk has failed: it takes nothing more until its store is opened again."""


class NormError(FJM2Error):
    """Base of the exceptions of `fjm2.norm`."""


class WireError(NormError, ValueError):
    """Bytes that are not a NORM message, or a message that cannot be encoded."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(f"{what} at offset {offset}")
        self.what = what
        """Description of the fault."""
        self.offset = offset
        """Offset of the fault in the datagram, in bytes."""
