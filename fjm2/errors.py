"""Every exception of FJM2.

FJM2Error
├── ConfigError          an invalid setting, with its value and what was expected (also a ValueError)
├── CaptureError         a file that is not a packet capture
├── JournalError         a journal whose disk has failed, so that it takes nothing more
├── NormError            NORM engine and codec
│   └── WireError        bytes that are not a NORM message: what is wrong, and at which offset
└── JMSError             errors of messaging; `fjm2.messages.errors` has the rest of this branch
"""

from fjm2.base.errors import (
    CaptureError,
    ConfigError,
    FJM2Error,
    JournalError,
    NormError,
    WireError,
)

__all__ = [
    "CaptureError",
    "ConfigError",
    "FJM2Error",
    "JournalError",
    "NormError",
    "WireError",
]
