"""Everything that the parts of one member share: who it is, what it sends, and what it tells its driver."""

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Protocol

from fjm2.base.ledger import Ledger

from .outgoing import Event, Outgoing
from .wire.fields import Member


class Storage(Protocol):
    """The journal, as a member writes it. Nothing that is stored is answered before its LSN is synced."""

    def store_frames(self, ledger: Ledger, first: int, frames: Sequence[bytes]) -> int | None:
        """Append frames, and return the LSN of their batch. None if the store has no room."""
        ...

    def store_promise(self, cell_id: int, epoch: int, voted_for: bytes) -> int | None:
        """Append a promise, and return the LSN of its batch. None if the store has no room."""
        ...


class Context:
    """Identity, randomness and queues of one member."""

    __slots__ = ("bus_key", "cell_id", "events", "me", "node_id", "outgoing", "random", "storage")

    def __init__(self, me: Member, node_id: int, bus_key: int, storage: Storage, random: Random) -> None:
        self.me = me
        self.node_id = node_id
        self.bus_key = bus_key
        self.storage = storage
        self.random = random
        self.cell_id = 0
        """Id of the cell that the keeper belongs to, or has heard; 0 without one."""
        self.outgoing: deque[Outgoing] = deque()
        self.events: deque[Event] = deque()
