"""One consumer of a durable subscription: its ledgers, its acknowledgements, and how many messages it takes."""

from typing import Final

from fjm2.base.ledger import Ledger

from ..wire.catch_up import CatchUpPage
from ..wire.ranges import Range
from ..wire.requests import Subscribe
from .consumer_acks import ConsumerAcks
from .context import ConsumerBase, Context, Reader
from .discovery import Discovery
from .durable_reader import DurableReader
from .outgoing import F
from .portion_reader import PortionReader
from .request_line import NEVER

READERS_MAX: Final = 20_000
"""Most ledgers of a consumer."""
QUIET_S: Final = 600.0
"""Time without frames after which a ledger is forgotten if there are too many. No keeper lags as far behind: one that
did could take its messages for new ones."""


class Consumer(ConsumerBase[F]):
    """A consumer. Until its subscription is granted it gets nothing."""

    def __init__(self, context: Context[F], handle: int, request: Subscribe) -> None:
        super().__init__(handle, request)
        self.acks: Final = ConsumerAcks(context, self)
        self._context = context
        self.has_ended = False
        self._discovery = Discovery()

    # Life

    def attach(self, number: int, table_version: int, *, is_resumed: bool, now: float) -> None:
        """Begin: the cell has granted the subscription."""
        self.number, self.table_version, self.is_resumed = number, table_version, is_resumed
        self._context.routes.add(self)
        self._context.attached.append(self)
        self.discover(now)

    def end(self) -> None:
        """Forget everything."""
        self.has_ended = True
        self._context.routes.remove(self)
        for reader in self.readers.values():
            self._remove(reader)
        self.readers.clear()
        self.number = 0

    def _remove(self, reader: Reader[F]) -> None:
        reader.forget()
        self._context.routes.remove_reader(reader)
        self._context.behind.pop(reader, None)
        self.paused.pop(reader, None)
        self.dirty.pop(reader, None)

    # Ledgers

    def open_reader(self, ledger: Ledger, now: float) -> Reader[F] | None:
        """Return the reader of a ledger. Return None if there are too many."""
        reader = self.readers.get(ledger)
        if reader is not None:
            return reader
        if len(self.readers) >= READERS_MAX and not self._forget_quiet(now):
            return None
        kind = PortionReader if self.is_handed(ledger) else DurableReader
        reader = self.readers[ledger] = kind(self._context, self, self.frame_hash, ledger)
        self._context.routes.add_reader(reader)
        return reader

    def has_read(self, ledger: Ledger, now: float) -> bool:
        """Return True if everything of a ledger was delivered, and nothing follows. Otherwise see that it is read."""
        reader = self.open_reader(ledger, now)
        return isinstance(reader, DurableReader) and reader.has_ended()

    def _forget_quiet(self, now: float) -> bool:
        """Forget the ledgers of which nothing was heard for long. Return True if there were any."""
        quiet = [each for each in self.readers.values() if each.heard_at + QUIET_S < now and each.is_idle]
        for reader in quiet:
            self._remove(reader)
            del self.readers[reader.ledger]
        return bool(quiet)

    def set_room(self, messages: int, now: float) -> None:
        """Set the number of messages that the owner takes from now on."""
        self.room = messages
        if messages and self.paused:
            paused, self.paused = self.paused, {}
            for reader in paused:
                self._context.behind[reader] = None
                reader.advance(now)

    def receive_page(self, page: CatchUpPage, source: int, now: float) -> None:
        """Take a page."""
        self._discovery.note_page(page, now)
        if not page.is_hint:
            reader = self.readers.get(page.ledger)
            if reader is not None:
                reader.take_page(page, source, now)
        elif page.spans and not self.is_handed(page.ledger):
            reader = self.open_reader(page.ledger, now)
            if isinstance(reader, DurableReader):
                reader.note_last(page.through, now)
        self.discover(now)

    def receive_hand(self, each: Range, now: float) -> None:
        """Take a range that was handed to this consumer."""
        reader = self.open_reader(each.ledger, now) if self.is_handed(each.ledger) else None
        if isinstance(reader, PortionReader):
            reader.take_hand(each, now)

    def discover(self, now: float) -> None:
        """Look for ledgers of which nothing was heard, if it is time."""
        if not self.number or self.is_shared or not self.room:
            return
        ledger = self._discovery.poll(now)
        if ledger is not None:
            self._context.ask(self.session, self.number, ledger, 1, is_exact=False)

    @property
    def discover_at(self) -> float:
        """Time at which to look for ledgers, or NEVER."""
        is_searching = self.number and self.room and not self.is_shared
        return self._discovery.next_at if is_searching else NEVER
