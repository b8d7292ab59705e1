"""The exceptions of JMS, checked and unchecked twins as one class each.

JMSError
├── IllegalStateError            closed object, wrong mode, call from one's own listener (also a RuntimeError)
├── InvalidClientIDError         client id refused (also a ValueError)
├── InvalidDestinationError      none, unknown, deleted or foreign destination (also a ValueError)
├── InvalidSelectorError         selector syntax, with its position (also a ValueError)
├── JMSSecurityError             credentials, or deserialisation refused (also a PermissionError)
├── MessageEOFError              read past the end (also an EOFError)
├── MessageFormatError           wrong or unsupported type (also a TypeError)
├── MessageNotReadableError      reading a write-only body (also a RuntimeError)
├── MessageNotWriteableError     writing a read-only body or properties (also a RuntimeError)
├── ResourceAllocationError      socket, buffer or coordinator not available (also a RuntimeError)
├── TransactionInProgressError   not valid inside a transaction (also a RuntimeError)
└── TransactionRolledBackError   commit ended in rollback

Beside the tree, as in Java: NumberFormatError (a ValueError) and NullValueError (a TypeError).
"""

from fjm2.base.errors import FJM2Error

__all__ = [
    "IllegalStateError",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSError",
    "JMSRuntimeError",
    "JMSSecurityError",
    "MessageEOFError",
    "MessageFormatError",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "NullValueError",
    "NumberFormatError",
    "ResourceAllocationError",
    "TransactionInProgressError",
    "TransactionRolledBackError",
]


class JMSError(FJM2Error):
    """Base of what JMS calls raise."""

    def __init__(
        self, reason: str = "", error_code: str | None = None, linked_exception: BaseException | None = None
    ) -> None:
        super().__init__(reason)
        self.error_code = error_code
        """A name of the fault, where there is one."""
        self.linked_exception = linked_exception
        """What lies beneath; `__cause__` as well."""
        if linked_exception is not None:
            self.__cause__ = linked_exception


JMSRuntimeError = JMSError
"""The same: what Java checks and what it does not are one here."""


class IllegalStateError(JMSError, RuntimeError):
    """The object is closed, in another mode, or busy."""


class InvalidClientIDError(JMSError, ValueError):
    """The client id is refused."""


class InvalidDestinationError(JMSError, ValueError):
    """There is no such destination, or not for this use."""


_SHOWN = 40
"""So much of a selector is shown, in characters: a part before the fault, and what follows."""


def _pointed(text: str, position: int) -> str:
    """The line of a text that a position is in, as far as it can be shown, and a mark below."""
    line_start, line_end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    start = max(line_start, position - _SHOWN // 2)
    end = min(len(text) if line_end < 0 else line_end, start + _SHOWN)
    line = "".join(character if character.isprintable() else " " for character in text[start:end])
    return f"  {line}\n  {' ' * (position - start)}^"


class InvalidSelectorError(JMSError, ValueError):
    """A text that is no selector: shows the text, and where it is wrong."""

    def __init__(self, reason: str, position: int = 0, selector: str | None = None) -> None:
        shown = "" if selector is None else f"\n{_pointed(selector, position)}"
        super().__init__(f"{reason} at position {position}{shown}")
        self.reason = reason
        """What is wrong."""
        self.selector = selector
        """The whole text, if it is known."""
        self.position = position
        """Where in the text the fault was seen, in characters from its first one."""


class JMSSecurityError(JMSError, PermissionError):
    """Credentials, or what was to be deserialised, are refused."""


class MessageEOFError(JMSError, EOFError):
    """A read past the end of a body."""


class MessageFormatError(JMSError, TypeError):
    """A value has the wrong type, or one that messages do not carry."""


class MessageNotReadableError(JMSError, RuntimeError):
    """A body that is being written cannot be read."""


class MessageNotWriteableError(JMSError, RuntimeError):
    """A received message is not written to before it is cleared."""


class ResourceAllocationError(JMSError, RuntimeError):
    """What the call needs is not available."""


class TransactionInProgressError(JMSError, RuntimeError):
    """Not valid inside a transaction."""


class TransactionRolledBackError(JMSError):
    """The commit ended in a rollback."""


class NumberFormatError(ValueError):
    """A text that is no number of the type asked for, or null."""


class NullValueError(TypeError):
    """Null where a value is needed."""
