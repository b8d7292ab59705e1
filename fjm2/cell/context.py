"""Everything that the parts of one member share: who it is, what it sends, and what it tells its driver."""

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Protocol

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet

from .outgoing import Event, Outgoing
from .wire.fields import Member


class Storage(Protocol):
    """The journal, as a member writes it. Nothing that is stored is answered before its LSN is synced."""

    def store_frames(
        self,
        ledger: Ledger,
        first: int,
        frames: Sequence[bytes],
        *,
        is_fetched: bool = False,
        is_urgent: bool = False,
    ) -> int | None:
        """Append frames, and return the LSN of their batch. None if the store has no room.

        A store that is full for messages has room for some that are fetched, and for urgent ones even then: requests
        and decisions.
        """
        ...

    def store_counted(self, ledger: Ledger, first: int, count: int, *, is_fetched: bool = False) -> int | None:
        """Append that sequences were seen and need no keeping. Return the LSN, or None if the store has no room."""
        ...

    def store_late(self, ledger: Ledger, first: int, frames: Sequence[bytes]) -> int | None:
        """Append frames of sequences that were counted before. Return the LSN, or None if the store has no room."""
        ...

    def store_settled(self, cell_id: int, version: int) -> int | None:
        """Append that no frames are in doubt that tables through a version ask for. Return the LSN, or None."""
        ...

    def store_promise(self, cell_id: int, epoch: int, voted_for: bytes) -> int | None:
        """Append a promise, and return the LSN of its batch. None if the store has no room."""
        ...

    def poll_refused(self) -> Sequence[int]:
        """Return the LSNs of batches that the disk had no room for after all, each of them once."""
        ...

    def live(self, ledger: Ledger, first: int, end: int) -> RangeSet:
        """Return the sequences first, ..., end - 1 whose frames are on disk and not released."""
        ...

    def release_decisions(self, cell_id: int, before: int) -> None:
        """Give up the entries of the decision log before an index: a snapshot stands for them."""
        ...

    @property
    def has_room(self) -> bool:
        """True if the store takes messages."""
        ...

    def forget(self, ledger: Ledger) -> None:
        """Give up a ledger, with all sequences that are known of it."""
        ...

    def release(self, ledger: Ledger, ranges: Iterable[tuple[int, int]]) -> None:
        """Give up frames. Their sequences stay known."""
        ...


class Context:
    """Identity, randomness and queues of one member."""

    __slots__ = ("bus_key", "cell_id", "events", "me", "node_id", "outgoing", "random", "storage", "wall_offset_s")

    def __init__(
        self,
        me: Member,
        node_id: int,
        bus_key: int,
        storage: Storage,
        random: Random,
        wall_offset_s: float = 0.0,
    ) -> None:
        self.me = me
        self.node_id = node_id
        self.bus_key = bus_key
        self.storage = storage
        self.random = random
        self.wall_offset_s = wall_offset_s
        self.cell_id = 0
        """Id of the cell that the keeper belongs to, or has heard; 0 without one."""
        self.outgoing: deque[Outgoing] = deque()
        self.events: deque[Event] = deque()

    def wall_ms(self, now: float) -> int:
        """Return the milliseconds since 1970 at a monotonic time. Only a manager looks, and puts them into the log."""
        return max(0, int((now + self.wall_offset_s) * 1000))
