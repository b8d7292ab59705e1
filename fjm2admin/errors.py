"""Exceptions of the node-list service.

FJM2Error
└── AdminError
    ├── ConfigurationError   invalid settings: all of them, each with its origin and what is allowed
    ├── StoreError           the file cannot be opened, read or written
    └── Refusal              answer to a request that is refused: status, code and text
"""

from collections.abc import Iterable

from fjm2.errors import FJM2Error


class AdminError(FJM2Error):
    """Base of the exceptions of `fjm2admin`."""


class ConfigurationError(AdminError, ValueError):
    """Invalid settings. The text has a line for each mistake."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class StoreError(AdminError):
    """The file of nodes and tokens cannot be used. The text names the file and the reason."""


class Refusal(AdminError):  # noqa: N818, it is an answer
    """Refusal of a request. The request is answered with this error."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        """Word by which programs recognize the refusal. It does not change."""
        self.message = message
        self.retry_after_s = retry_after_s
