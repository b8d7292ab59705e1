"""Every exception of FJM2.

FJM2Error
├── ConfigError          a setting that makes no sense, with the value and what was expected (also a ValueError)
├── CaptureError         a file that is no packet capture
└── NormError            NORM engine and codec
    └── WireError        bytes that are no NORM message: what is wrong, and at which offset
"""

__all__ = ["CaptureError", "ConfigError", "FJM2Error", "NormError", "WireError"]


class FJM2Error(Exception):
    """Base of every exception that FJM2 raises on purpose."""


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
        self.offset = offset
        """Where in the datagram the fault was seen, in bytes from its first one."""
