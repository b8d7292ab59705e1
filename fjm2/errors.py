"""Every exception of FJM2.

FJM2Error
├── ConfigError          a setting that makes no sense, with the value and what was expected (also a ValueError)
├── CaptureError         a file that is no packet capture
├── NormError            NORM engine and codec
│   └── WireError        bytes that are no NORM message: what is wrong, and at which offset
└── JMSError             messages: `fjm2.messages.errors` goes on from there
"""

from fjm2.base.errors import (
    CaptureError,
    ConfigError,
    FJM2Error,
    NormError,
    WireError,
)

__all__ = [
    "CaptureError",
    "ConfigError",
    "FJM2Error",
    "NormError",
    "WireError",
]
