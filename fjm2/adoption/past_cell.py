"""The decisions of a cell that is no more, as one of its stores has them: who had acknowledged what."""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

from fjm2.base.errors import JournalError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.bus.ledgers.destinations import REQUESTS
from fjm2.cell.context import Context
from fjm2.cell.outgoing import RequestWanted
from fjm2.cell.replica import Replica
from fjm2.cell.service.clients import Clients
from fjm2.cell.service.cursors import Cursor
from fjm2.cell.service.section import ServiceSection
from fjm2.keeper.kept_frames import KeptFrames, all_kept
from fjm2.keeper.storage import JournalStorage, member_of, remember
from fjm2.messages.frame import frame_alone
from fjm2.messages.header import DESTINATION_HASH
from fjm2.store.disk import Disk
from fjm2.store.journal import Journal

_REQUEST_BYTES: Final = 1 << 20


class PastCell:
    """A cell as a store remembers it. Nothing is written.

    All decisions in the store count, also those of which it does not know that they were committed: a consumer that
    asked for an acknowledgement was done with the message.
    """

    def __init__(self, journal: Journal, disk: Disk) -> None:
        """Read the decisions, and the heads of all messages: a million of them take a second. Raise JournalError if the
        disk does not give one of them."""
        self._journal, self._disk = journal, disk
        storage = JournalStorage(journal, lambda *_args, **_more: None)  # a store that takes nothing
        context = self._context = Context(member_of(journal), 0, 0, storage, Random(0))
        section = ServiceSection()
        self._replica = Replica(context, remember(journal, disk), 0.0, sections=(section,))
        self._replica.commit(self._replica.log.last_index, 0.0)
        self._clients = Clients(context, self._replica, section)
        self._kept = all_kept(journal, disk)
        self._note_kept(self._kept)
        self._apply()

    @property
    def cell_id(self) -> int:
        """Id of the cell; 0 if the store never belonged to one."""
        return self._context.cell_id

    def _note_kept(self, kept: Iterable[KeptFrames]) -> None:
        hashes = self._replica.table.hashes()
        for each in kept:
            for frame_hash in hashes:
                for first, times_ms in each.times_to(frame_hash):
                    self._clients.note_delivery_times(each.ledger, first, times_ms)
                self._clients.note_ranges(frame_hash, each.ledger, each.ranges_to(frame_hash))

    def _apply(self) -> None:
        """Apply all decisions. Each asks for the requests that it grants."""
        found = True
        while found:
            self._clients.advance()
            wanted = [event for event in self._context.events if isinstance(event, RequestWanted)]
            self._context.events.clear()
            found = False
            for each in wanted:
                found = self._find(each) or found

    def _find(self, wanted: RequestWanted) -> bool:
        """Pass a request of the store on. Return False if the store lacks it."""
        ledger, sequence = wanted.ledger, wanted.sequence
        read = self._journal.read(ledger, RangeSet([(sequence, sequence + 1)]), _REQUEST_BYTES)
        for frame in read.fetch(self._disk):
            if frame is None:
                raise JournalError(f"request {sequence} of {ledger} cannot be read: expected what was stored")
            buffer, _, body, end, header = frame_alone(frame)
            if header[DESTINATION_HASH] == REQUESTS.frame_hash:
                self._clients.receive_request(ledger, sequence, bytes(buffer[body:end]))
                return True
        return False

    def topics(self) -> dict[int, list[Cursor]]:
        """Return the durable subscriptions of each topic, by the topic's hash. Others ended with their consumers."""
        found: dict[int, list[Cursor]] = {}
        for cursor in self._clients.state.cursors.values():
            if cursor.is_durable:
                found.setdefault(cursor.frame_hash, []).append(cursor)
        return found

    def unacknowledged(self) -> Iterator[tuple[Ledger, dict[int, RangeSet]]]:
        """Yield, by ledger and topic, the messages that some durable subscription has not acknowledged."""
        by_ledger: dict[Ledger, dict[int, RangeSet]] = {}
        backlog = self._clients.backlog
        for frame_hash, cursors in self.topics().items():
            for ledger in backlog.ledgers_of(frame_hash):
                waiting = RangeSet()
                for first, end in backlog.ranges(frame_hash, ledger):
                    for cursor in cursors:
                        waiting.update(RangeSet(cursor.gaps(ledger, first, end)))
                if waiting:
                    by_ledger.setdefault(ledger, {})[frame_hash] = waiting
        for ledger in sorted(by_ledger):
            yield ledger, by_ledger[ledger]
