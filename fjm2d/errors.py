"""The exceptions of fjm2d.

FJM2Error
└── GatewayError
    ├── ConfigurationError    a wrong setting: names the file, the key and what is allowed
    ├── ConfigurationErrors   all wrong settings of a configuration
    ├── KeyTextError          a text that is not a public key (also a ValueError)
    └── KeyFileError          an unusable key file: names it, and says what to do
"""

from collections.abc import Sequence

from fjm2.errors import FJM2Error

__all__ = ["ConfigurationError", "ConfigurationErrors", "GatewayError", "KeyFileError", "KeyTextError"]


class GatewayError(FJM2Error):
    """Base of the exceptions of fjm2d."""


class ConfigurationError(GatewayError):
    """One wrong setting."""

    def __init__(self, file: str, key: str, problem: str, allowed: str) -> None:
        super().__init__(f"{file}: {key}: {problem}; allowed: {allowed}")
        self.file = file
        """File of the setting, or "environment"."""
        self.key = key
        self.problem = problem
        self.allowed = allowed


class ConfigurationErrors(GatewayError):  # noqa: N818
    """All wrong settings of a configuration."""

    def __init__(self, errors: Sequence[ConfigurationError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


class KeyTextError(GatewayError, ValueError):
    """A text that is not a public key."""


class KeyFileError(GatewayError):
    """A key file that is missing, open to others, or holds no key."""
