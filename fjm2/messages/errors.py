"""JMS exceptions. A checked exception and its unchecked twin are one class here.

JMSError
├── IllegalStateError            closed object, wrong mode, call from one's own listener (also a RuntimeError)
├── InvalidClientIDError         client id refused (also a ValueError)
├── InvalidDestinationError      missing, unknown, deleted or foreign destination (also a ValueError)
├── InvalidSelectorError         selector syntax, with its position (also a ValueError)
├── JMSSecurityError             credentials, or refused deserialisation (also a PermissionError)
├── MessageEOFError              read past the end (also an EOFError)
├── MessageFormatError           wrong or unsupported type (also a TypeError)
├── MessageNotReadableError      reading a write-only body (also a RuntimeError)
├── MessageNotWriteableError     writing a read-only body or properties (also a RuntimeError)
├── NoReplyError                 nobody replied to a request in time (also a TimeoutError)
├── ResourceAllocationError      socket, buffer or coordinator not available (also a RuntimeError)
├── TransactionInProgressError   not valid inside a transaction (also a RuntimeError)
└── TransactionRolledBackError   commit ended in rollback

Outside the tree, as in Java: NumberFormatError (a ValueError) and NullValueError (a TypeError).
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
    "NoReplyError",
    "NullValueError",
    "NumberFormatError",
    "ResourceAllocationError",
    "TransactionInProgressError",
    "TransactionRolledBackError",
]


class JMSError(FJM2Error):
    """Base of exceptions raised by JMS calls."""

    def __init__(
        self, reason: str = "", error_code: str | None = None, linked_exception: BaseException | None = None
    ) -> None:
        super().__init__(reason)
        self.error_code = error_code
        """Stable name of the error; None if it has none."""
        self.linked_exception = linked_exception
        """Exception that caused this one, also in `__cause__`; None if there is none."""
        if linked_exception is not None:
            self.__cause__ = linked_exception


JMSRuntimeError = JMSError
"""The same class as JMSError. Java has checked and unchecked exceptions; here they are one."""


class IllegalStateError(JMSError, RuntimeError):
    """The call is not possible, because the object is closed, in the wrong mode, or busy."""


class InvalidClientIDError(JMSError, ValueError):
    """The client id is refused."""


class InvalidDestinationError(JMSError, ValueError):
    """The destination does not exist, or is not valid for this use."""


_EXCERPT_CHARACTERS_MAX = 40
"""Length of the excerpt of a selector in an error message, so that it fits a line of a log. Half of it precedes the
error."""


def _pointed(text: str, position: int) -> str:
    """Return an excerpt of the line that holds a position, with a mark below it."""
    line_start, line_end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    start = max(line_start, position - _EXCERPT_CHARACTERS_MAX // 2)
    end = min(len(text) if line_end < 0 else line_end, start + _EXCERPT_CHARACTERS_MAX)
    line = "".join(character if character.isprintable() else " " for character in text[start:end])
    return f"  {line}\n  {' ' * (position - start)}^"


class InvalidSelectorError(JMSError, ValueError):
    """The text is not a valid selector. The message of the exception shows an excerpt, and the position."""

    def __init__(self, reason: str, position: int = 0, selector: str | None = None) -> None:
        shown = "" if selector is None else f"\n{_pointed(selector, position)}"
        super().__init__(f"{reason} at position {position}{shown}")
        self.reason = reason
        """Description of the error."""
        self.selector = selector
        """Text of the whole selector; None if it is not known."""
        self.position = position
        """Index of the character where the error was found."""


class JMSSecurityError(JMSError, PermissionError):
    """Credentials are refused, or an object must not be deserialised."""


class MessageEOFError(JMSError, EOFError):
    """A read went past the end of a body."""


class MessageFormatError(JMSError, TypeError):
    """A value has the wrong type, or a type that messages do not support."""


class MessageNotReadableError(JMSError, RuntimeError):
    """A body that is being written cannot be read."""


class MessageNotWriteableError(JMSError, RuntimeError):
    """The body or the properties of a received message cannot be written before they are cleared."""


class NoReplyError(JMSError, TimeoutError):
    """Nobody replied to a request in time. The message of the exception says who was asked."""


class ResourceAllocationError(JMSError, RuntimeError):
    """A resource that the call needs is not available."""


class TransactionInProgressError(JMSError, RuntimeError):
    """The call is not valid inside a transaction."""


class TransactionRolledBackError(JMSError):
    """The commit ended in a rollback."""


class NumberFormatError(ValueError):
    """A text is not a number of the requested type, or a number was requested of null."""


class NullValueError(TypeError):
    """Null was found where a value is needed."""
