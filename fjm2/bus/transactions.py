"""Received transactions, called batches. The messages of a batch are delivered together when all have come, or never.

A batch may be spread over several lanes, each a sender of its own. Batches of one connection that share a sender are
released in the order of their numbers, which is that of their commits. A batch that cannot become complete is dropped
and reported: if its senders are gone or silent, or bytes of theirs were lost, and nothing more came for a while; if
nothing came for long; or if there is no memory for it.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, Generic, TypeVar

from fjm2.messages.frame import TRANSACTION_BYTES, TRANSACTION_BYTES_MAX, TRANSACTION_PART_BYTES
from fjm2.messages.header import Transaction

from .reports import BusReport, TransactionDropped

BYTES_MAX: Final = 4 * TRANSACTION_BYTES_MAX
"""Greatest memory of all incomplete batches together. A few connections may commit at the same time."""
_BATCHES_MAX: Final = 256
"""Greatest number of incomplete batches of one connection. FJM2 commits batches one after the other, so more are
hostile or lost."""
_DROPPED_ONE_IN: Final = 16
"""Share of the batches that is dropped at once when memory is short: 1 in 16. It takes time to find the largest
batches."""
SILENT_S: Final = 5.0
"""Time after the last message for which a batch is kept if its senders are gone, or silent for as long, or if bytes of
theirs were lost. A sender in the middle of a transaction is heard several times a second."""
_STALLED_S: Final = 60.0
"""Time after the last message for which any batch is kept."""
_REMEMBERED_MAX: Final = 1024
"""Greatest number of dropped batches that are remembered, so that late messages do not begin them anew."""

_Part = TypeVar("_Part")


class TransactionDrop(Enum):
    """Reasons to drop a batch."""

    SENDER_GONE = "its sender is gone"
    SENDER_SILENT = "its sender is silent, and may be gone"
    BYTES_LOST = "bytes of its sender were lost"
    STALLED = "the rest did not come"
    NO_MEMORY = "there is no memory for more"


class _Batch(Generic[_Part]):
    __slots__ = ("bytes", "changed_at", "has_gap", "key", "live", "parts", "senders", "size")

    def __init__(self, key: tuple[int, int], size: int) -> None:
        self.key = key
        self.size = size
        self.parts: dict[int, _Part | None] = {}
        """Parts by their place in the batch; None for a message that no subscriber here wants."""
        self.bytes = TRANSACTION_BYTES
        self.senders: set[int] = set()
        self.live: set[int] = set()
        """Senders that are not gone."""
        self.has_gap = False
        self.changed_at = 0.0

    @property
    def is_complete(self) -> bool:
        return len(self.parts) == self.size

    def overdue(self, now: float, is_silent: Callable[[int], bool]) -> TransactionDrop | None:
        """Return the reason to drop the batch now, or None to keep waiting."""
        if self.is_complete:
            return None
        silent_s = now - self.changed_at
        if silent_s < SILENT_S:
            return None
        if not self.live:
            return TransactionDrop.SENDER_GONE
        if self.has_gap:
            return TransactionDrop.BYTES_LOST
        if all(map(is_silent, self.live)):
            return TransactionDrop.SENDER_SILENT
        return TransactionDrop.STALLED if silent_s >= _STALLED_S else None


class Transactions(Generic[_Part]):
    """All incomplete batches."""

    def __init__(
        self,
        release: Callable[[_Part], None],
        report: Callable[[BusReport], None],
        bytes_max: int = BYTES_MAX,
        on_drop: Callable[[Iterable[_Part | None]], None] = lambda _: None,
    ) -> None:
        """Call `on_drop` with the parts of each batch that is dropped, before it is reported."""
        self._release = release
        self._report = report
        self._bytes_max = bytes_max
        self._on_drop = on_drop
        self._connections: dict[int, dict[int, _Batch[_Part]]] = {}
        """Batches by connection id and transaction number."""
        self._dropped: dict[tuple[int, int], None] = {}
        """Keys of dropped batches. Late messages of these batches are refused."""
        self.held_bytes = 0
        self.refused = 0
        """Number of messages refused: duplicates, late messages of dropped batches, and contradictions within a
        batch."""

    def __len__(self) -> int:
        return sum(map(len, self._connections.values()))

    def has(self, connection_id: int, number: int) -> bool:
        """Return True if a batch has begun and is still held."""
        return number in self._connections.get(connection_id, ())

    def add(
        self, connection_id: int, transaction: Transaction, part: _Part | None, part_bytes: int, sender: int, now: float
    ) -> None:
        """Add a message of a transaction. If `part` is None, it only counts towards completeness. Release batches that
        are complete."""
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
        size = TRANSACTION_PART_BYTES + part_bytes
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
        """Note that bytes of a sender are lost, and perhaps messages of its batches."""
        for batch in self._all():
            if sender in batch.senders:
                batch.has_gap = True

    def note_gone(self, sender: int) -> None:
        """Note that a sender is gone. Messages of the connection's other lanes may still complete its batches."""
        for batch in self._all():
            batch.live.discard(sender)

    def postpone(self, seconds: float) -> None:
        """Let all batches wait for longer, because this process did not listen for so many seconds."""
        for batch in self._all():
            batch.changed_at += seconds

    def expire(self, now: float, is_silent: Callable[[int], bool] = lambda _: False) -> None:
        """Drop batches that have waited long enough, and release batches that waited for them.

        `is_silent` returns True if nothing was heard of a sender for `SILENT_S`.
        """
        for batch in self._all():
            reason = batch.overdue(now, is_silent)
            if reason is not None:
                self._drop(batch, reason)

    def _all(self) -> list[_Batch[_Part]]:
        return [batch for batches in self._connections.values() for batch in batches.values()]

    def _bound(self) -> None:
        while self.held_bytes > self._bytes_max:
            # The largest go first, so that a greedy connection does not cost others their batches.
            largest_first = sorted(self._all(), key=lambda batch: batch.bytes, reverse=True)
            for batch in largest_first[: 1 + len(largest_first) // _DROPPED_ONE_IN]:
                self._drop(batch, TransactionDrop.NO_MEMORY)

    def _drop(self, batch: _Batch[_Part], reason: TransactionDrop) -> None:
        connection_id, number = batch.key
        if not self.has(connection_id, number):
            return
        self._forget(batch)
        self._dropped[batch.key] = None
        if len(self._dropped) > _REMEMBERED_MAX:
            del self._dropped[next(iter(self._dropped))]
        self._on_drop(batch.parts.values())
        received, senders = len(batch.parts), frozenset(batch.senders)
        self._report(TransactionDropped(connection_id, number, received, batch.size, reason.value, senders))
        self._release_complete(connection_id)

    def _release_complete(self, connection_id: int) -> None:
        """Release complete batches, unless an earlier batch in one of their lanes is incomplete."""
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
