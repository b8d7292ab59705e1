"""Every exception of fjm2d.

FJM2Error
└── GatewayError
    ├── ConfigurationError    one setting that makes no sense: names the file, the key and what is allowed
    ├── ConfigurationErrors   all of those that a file has
    ├── KeyTextError          a text that is no public key (also a ValueError)
    └── KeyFileError          a key file that cannot be used: names it, and says what to do
"""

from collections.abc import Sequence

from fjm2.errors import FJM2Error

__all__ = ["ConfigurationError", "ConfigurationErrors", "GatewayError", "KeyFileError", "KeyTextError"]


class GatewayError(FJM2Error):
    """Base of the exceptions of fjm2d."""


class ConfigurationError(GatewayError):
    """One setting that makes no sense."""

    def __init__(self, file: str, key: str, problem: str, allowed: str) -> None:
        super().__init__(f"{file}: {key}: {problem}; allowed: {allowed}")
        self.file = file
        """The file it stands in, or the name of what stands for one, such as "environment"."""
        self.key = key
        self.problem = problem
        self.allowed = allowed


class ConfigurationErrors(GatewayError):  # noqa: N818
    """Everything that is wrong with a configuration, at once."""

    def __init__(self, errors: Sequence[ConfigurationError]) -> None:
        super().__init__("\n".join(str(error) for error in errors))
        self.errors = tuple(errors)


class KeyTextError(GatewayError, ValueError):
    """A text that is no public key."""


class KeyFileError(GatewayError):
    """A key file that is missing, open to others, or holds no key."""
