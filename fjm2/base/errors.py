"""Every exception of FJM2.

FJM2Error
├── ConfigError          a setting that makes no sense, with the value and what was expected (also a ValueError)
├── CaptureError         a file that is no packet capture
├── NormError            NORM engine and codec
│   └── WireError        bytes that are no NORM message: what is wrong, and at which offset
└── JMSError             messages: `fjm2.messages.errors` goes on from there
"""

from typing import Any

__all__ = ["CaptureError", "ConfigError", "FJM2Error", "NormError", "WireError"]


class FJM2Error(Exception):
    """Base of every exception that FJM2 raises on purpose. All of them come back whole from other processes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[FJM2Error], arguments: tuple[object, ...], attributes: dict[str, object]) -> FJM2Error:
    """What constructors make of their parameters is in these already."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(attributes)
    return error


class ConfigError(FJM2Error, ValueError):
    """A setting that makes no sense: names the setting, the value and what was expected."""


class CaptureError(FJM2Error):
    """A file that is no packet capture, or of a kind that is not read: says which."""


class NormError(FJM2Error):
    """Base of the exceptions of `fjm2.norm`."""


class WireError(NormError, ValueError):
    """Bytes that are no NORM message, or a message that has no form on the wire."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(f"{what} at offset {offset}")
        self.what = what
        """What is wrong."""
        self.offset = offset
        """Where in the datagram the fault was seen, in bytes from its first one."""
