"""How publishers and subscribers find each other on a bus, in application commands.

A subscriber says HERE about twice a second until it is answered, or sees data. The publisher answers WELCOME, with the
subscriber's node id and how many messages there have been, and says END, with how many there were, when all is over.
"""

import asyncio
import struct
from dataclasses import dataclass
from enum import IntEnum

from fjm2.norm import Session

HELLO_INTERVAL_S = 0.4
_HELLO = struct.Struct("!8sBxxxIQ")
_MAGIC = b"fjm2bnch"


class Word(IntEnum):
    """What is said."""

    HERE = 1
    WELCOME = 2
    END = 3


@dataclass(frozen=True, slots=True)
class Hello:
    """One of the commands."""

    word: Word
    node_id: int
    """Of the subscriber; 0 for all."""
    messages: int = 0

    def encode(self) -> bytes:
        return _HELLO.pack(_MAGIC, self.word, self.node_id, self.messages)


def decode(content: bytes) -> Hello | None:
    """None for what others say on the bus."""
    if len(content) != _HELLO.size:
        return None
    magic, word, node_id, messages = _HELLO.unpack(content)
    return Hello(Word(word), node_id, messages) if magic == _MAGIC and word in set(Word) else None


async def announce(session: Session, answered: asyncio.Event) -> None:
    """Say HERE until there is an answer."""
    while not answered.is_set():
        session.send_command(Hello(Word.HERE, session.node_id).encode())
        try:
            async with asyncio.timeout(HELLO_INTERVAL_S):
                await answered.wait()
        except TimeoutError:
            pass
