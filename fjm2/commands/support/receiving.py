"""Prints received messages to standard output."""

import os
import sys

from fjm2.base.errors import FJM2Error
from fjm2.jms import Message, MessageConsumer

from .bus_link import say
from .rendering import Formatter, describe_error
from .streams import write

_BATCH_BYTES = 1 << 16
"""Size at which collected messages are written. It is chosen for few system calls, but no long delay."""


class Printer:
    """Prints the messages of a consumer."""

    def __init__(self, formatter: Formatter) -> None:
        self._formatter = formatter
        self.messages = 0
        self.unreadable = 0

    async def print_from(self, consumer: MessageConsumer, count: int | None) -> None:
        """Print `count` messages, or all until this is cancelled. Raise BrokenPipeError if nobody reads the output any
        more."""
        while count is None or self.messages < count:
            message = await consumer.receive()
            pieces, size = [], 0
            while message is not None:
                pieces.append(self._format(message))
                size += len(pieces[-1])
                if self.messages == count or size >= _BATCH_BYTES:
                    break
                message = await consumer.receive_no_wait()
            await write(b"".join(pieces))

    def _format(self, message: Message) -> bytes:
        self.messages += 1
        try:
            return self._formatter(message)
        except FJM2Error as error:
            self.unreadable += 1
            say(describe_error(error, message))
            return b""


def abandon_stdout() -> None:
    """Discard what is left in the buffer of standard output, which nobody reads, so that flushing it at exit does not
    fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
