"""Exceptions of the node-list service.

FJM2Error
└── AdminError
    ├── ConfigurationError   settings that make no sense: all of them, each with its place and what is allowed
    ├── StoreError           the file cannot be opened, read or written
    └── Refusal              a request that is answered with an error: status, code and text
"""

from collections.abc import Iterable

from fjm2.errors import FJM2Error


class AdminError(FJM2Error):
    """Base of the exceptions of `fjm2admin`."""


class ConfigurationError(AdminError, ValueError):
    """Settings that make no sense, one a line."""

    def __init__(self, faults: Iterable[str]) -> None:
        self.faults = tuple(faults)
        super().__init__("\n".join(self.faults))


class StoreError(AdminError):
    """The file that keeps nodes and tokens cannot be used; says which, and why."""


class Refusal(AdminError):  # noqa: N818, it is an answer
    """Answers a request with an error."""

    def __init__(self, status: int, code: str, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        """For programs: one word that does not change."""
        self.message = message
        self.retry_after_s = retry_after_s
