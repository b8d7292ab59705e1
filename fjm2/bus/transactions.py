"""Transactions on their way in: a batch of messages is released when it is complete, or not at all.

The messages of a batch may lie in several lanes, each of which is a sender of its own. Batches of one connection that
share a sender are released in the order of their numbers, as they were committed. What can't become complete any more
is dropped and reported: when its senders are gone, when bytes were lost and nothing more came for a while, when nothing
came for long, or when there is no memory for it.
"""

from collections.abc import Callable
from enum import Enum
from typing import Final, Generic, TypeVar

from fjm2.messages.header import Transaction

from .reports import BusReport, TransactionDropped

BYTES_MAX: Final = 64 << 20
"""Of all batches that are not complete."""
_PART_BYTES: Final = 128
"""What a part takes besides its frame, wanted or not."""
_BATCH_BYTES: Final = 1024
_BATCHES_MAX: Final = 256
"""Of one connection at a time."""
_DROPPED_AT_ONCE: Final = 16
"""One of so many."""
_DOUBTFUL_S: Final = 5.0
"""With its senders gone, or bytes of theirs lost, a batch is waited for so long after its last message."""
_STALLED_S: Final = 60.0
"""Otherwise so long."""
_REMEMBERED_MAX: Final = 1024

_Part = TypeVar("_Part")


class TransactionDrop(Enum):
    """Why a batch was dropped."""

    SENDER_GONE = "its sender is gone"
    BYTES_LOST = "bytes of its sender were lost"
    STALLED = "the rest did not come"
    NO_MEMORY = "there is no memory for more"


class _Batch(Generic[_Part]):
    __slots__ = ("bytes", "changed_at", "has_gap", "key", "live", "parts", "senders", "size")

    def __init__(self, key: tuple[int, int], size: int) -> None:
        self.key = key
        self.size = size
        self.parts: dict[int, _Part | None] = {}
        """By place; None for what nobody here wants."""
        self.bytes = _BATCH_BYTES
        self.senders: set[int] = set()
        self.live: set[int] = set()
        """Those of its senders that are not gone."""
        self.has_gap = False
        self.changed_at = 0.0

    @property
    def is_complete(self) -> bool:
        return len(self.parts) == self.size

    def overdue(self, now: float) -> TransactionDrop | None:
        """Why to wait no longer, if that is so."""
        if self.is_complete:
            return None
        silent_s = now - self.changed_at
        if silent_s >= _DOUBTFUL_S and not self.live:
            return TransactionDrop.SENDER_GONE
        if silent_s >= _DOUBTFUL_S and self.has_gap:
            return TransactionDrop.BYTES_LOST
        return TransactionDrop.STALLED if silent_s >= _STALLED_S else None


class Transactions(Generic[_Part]):
    """The batches that have begun."""

    def __init__(
        self,
        release: Callable[[_Part], None],
        report: Callable[[BusReport], None],
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self._release = release
        self._report = report
        self._bytes_max = bytes_max
        self._connections: dict[int, dict[int, _Batch[_Part]]] = {}
        """Connection id to transaction number to batch."""
        self._dropped: dict[tuple[int, int], None] = {}
        """What comes of these is too late."""
        self.held_bytes = 0
        self.refused = 0
        """Parts that came twice, late, or disagree with others of their batch."""

    def __len__(self) -> int:
        return sum(map(len, self._connections.values()))

    def has(self, connection_id: int, number: int) -> bool:
        """Whether a batch has begun."""
        return number in self._connections.get(connection_id, ())

    def add(
        self, connection_id: int, transaction: Transaction, part: _Part | None, part_bytes: int, sender: int, now: float
    ) -> None:
        """A message has come; without a `part` it only counts. Releases what is complete by that."""
        key = connection_id, transaction.number
        if key in self._dropped:
            self.refused += 1
            return
        batches = self._connections.setdefault(connection_id, {})
        batch = batches.get(transaction.number)
        if batch is None:
            batch = batches[transaction.number] = _Batch(key, transaction.size)
            self.held_bytes += batch.bytes
        if batch.size != transaction.size or transaction.place in batch.parts:
            self.refused += 1
            return
        batch.parts[transaction.place] = part
        size = _PART_BYTES + part_bytes
        batch.bytes += size
        self.held_bytes += size
        batch.senders.add(sender)
        batch.live.add(sender)
        batch.changed_at = now
        if batch.is_complete:
            self._release_complete(connection_id)
        elif len(batches) > _BATCHES_MAX:
            self._drop(batches[min(batches)], TransactionDrop.NO_MEMORY)
        self._bound()

    def note_gap(self, sender: int) -> None:
        """Bytes of a sender are lost: perhaps messages of its batches."""
        for batch in self._all():
            if sender in batch.senders:
                batch.has_gap = True

    def note_gone(self, sender: int) -> None:
        """A sender is gone. What other lanes of it still have under way may complete its batches."""
        for batch in self._all():
            batch.live.discard(sender)

    def expire(self, now: float) -> None:
        """Drop what was waited for long enough, and release what waited behind it."""
        for batch in self._all():
            reason = batch.overdue(now)
            if reason is not None:
                self._drop(batch, reason)

    def _all(self) -> list[_Batch[_Part]]:
        return [batch for batches in self._connections.values() for batch in batches.values()]

    def _bound(self) -> None:
        while self.held_bytes > self._bytes_max:
            # Whoever takes all there is must not do so at the expense of others. Looking takes time where there are
            # many: then a part of them is dropped at once.
            largest_first = sorted(self._all(), key=lambda batch: batch.bytes, reverse=True)
            for batch in largest_first[: 1 + len(largest_first) // _DROPPED_AT_ONCE]:
                self._drop(batch, TransactionDrop.NO_MEMORY)

    def _drop(self, batch: _Batch[_Part], reason: TransactionDrop) -> None:
        connection_id, number = batch.key
        if not self.has(connection_id, number):
            return
        self._forget(batch)
        self._dropped[batch.key] = None
        if len(self._dropped) > _REMEMBERED_MAX:
            del self._dropped[next(iter(self._dropped))]
        self._report(TransactionDropped(connection_id, number, len(batch.parts), batch.size, reason.value))
        self._release_complete(connection_id)

    def _release_complete(self, connection_id: int) -> None:
        """Release what is complete, unless a batch before it in one of its lanes is not."""
        blocked: set[int] = set()
        for _, batch in sorted(self._connections.get(connection_id, {}).items()):
            if batch.is_complete and blocked.isdisjoint(batch.senders):
                self._forget(batch)
                for _, part in sorted(batch.parts.items(), key=lambda item: item[0]):
                    if part is not None:
                        self._release(part)
            else:
                blocked |= batch.senders

    def _forget(self, batch: _Batch[_Part]) -> None:
        connection_id, number = batch.key
        batches = self._connections[connection_id]
        del batches[number]
        if not batches:
            del self._connections[connection_id]
        self.held_bytes -= batch.bytes
