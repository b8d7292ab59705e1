"""Handshake by which publishers and subscribers find each other on a bus. It consists of application commands.

A subscriber sends HERE about twice a second until it is answered or receives data. The publisher answers WELCOME with
the subscriber's node id and the number of messages so far. At the end it sends END with the number of all messages.
"""

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum

from fjm2.norm import Session

HELLO_INTERVAL_S = 0.4
"""Time between two HERE commands of a subscriber. It repeats them because commands are not reliable."""
_HELLO = struct.Struct("!8sBxxxIQ")
_MAGIC = b"fjm2bnch"


class Word(IntEnum):
    """Kinds of commands of the handshake."""

    HERE = 1
    WELCOME = 2
    END = 3


@dataclass(frozen=True, slots=True)
class Hello:
    """A command of the handshake."""

    word: Word
    node_id: int
    """Node id of the subscriber; 0 means all."""
    messages: int = 0

    def encode(self) -> bytes:
        return _HELLO.pack(_MAGIC, self.word, self.node_id, self.messages)


def decode(content: bytes) -> Hello | None:
    """Decode a command. Return None for other programs' commands."""
    if len(content) != _HELLO.size:
        return None
    magic, word, node_id, messages = _HELLO.unpack(content)
    return Hello(Word(word), node_id, messages) if magic == _MAGIC and word in set(Word) else None


async def announce(session: Session, answered: asyncio.Event) -> None:
    """Send HERE until there is an answer."""
    while not answered.is_set():
        session.send_command(Hello(Word.HERE, session.node_id).encode())
        try:
            async with asyncio.timeout(HELLO_INTERVAL_S):
                await answered.wait()
        except TimeoutError:
            pass
