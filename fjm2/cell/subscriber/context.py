"""Everything that the sessions, consumers and readers of one connection share: what readers are, and their way to
frames, questions and events."""

from collections import deque
from collections.abc import Callable, Container, Sequence
from random import Random
from typing import Final, Generic

from fjm2.base.ledger import Ledger

from ..client.cell_choice import CellChoice
from ..outgoing import SendCommand
from ..subscription_table import SubscriptionKey
from ..wire.catch_up import CatchUpPage, CatchUpQuery
from ..wire.commands import MemberFlag
from ..wire.requests import Subscribe, SubscriptionFlag
from .ledger_acks import LedgerAcks
from .outgoing import Deliver, Event, F, ListenToReplays, Outgoing, SessionsKept
from .request_line import RequestLine
from .trust import Trust

HELD_BYTES_MAX: Final = 8 << 20
"""Most bytes of frames that wait for those before them, over all consumers of a connection. What does not fit is
forgotten, and asked for again."""
RETRY_S: Final = 0.3
"""Time after which what was asked for and did not come is asked for again, mostly of another keeper."""


class FrameRoom(Generic[F]):
    """The room for frames that wait."""

    def __init__(self, detach: Callable[[F], tuple[F, int]]) -> None:
        self.detach: Final = detach
        """Returns a copy of a frame that keeps nothing else in memory, and its size."""
        self.bytes = 0
        """Bytes of all frames that wait."""

    def take(self, size: int) -> bool:
        """Take room for a frame. Return False if there is none."""
        if self.bytes and self.bytes + size > HELD_BYTES_MAX:
            return False
        self.bytes += size
        return True


class Reader(Generic[F]):
    """Reads a ledger for a consumer: gets its frames in any order, some of them never or twice, and delivers them in
    order."""

    __slots__ = ("acks", "answered_by", "asked_at", "consumer", "context", "frame_hash", "heard_at", "ledger")

    def __init__(
        self, context: "Context[F]", consumer: "ConsumerBase[F]", frame_hash: int, ledger: Ledger, *, is_shared: bool
    ) -> None:
        self.context = context
        self.consumer = consumer
        self.frame_hash = frame_hash
        self.ledger = ledger
        self.acks = LedgerAcks(is_shared=is_shared)
        self.asked_at = -RETRY_S
        """Time of the last question."""
        self.answered_by = 0
        """Node of the keeper that has answered the last question; 0 if none has."""
        self.heard_at = 0.0

    @property
    def is_behind(self) -> bool:
        """Return True if something is missing."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Return True if nothing is missing, and nothing waits to be acknowledged."""
        acks = self.acks
        return not (self.is_behind or acks.outstanding or acks.asked or acks.flying)

    def hear(self, first: int, frames: Sequence[F], now: float) -> None:
        """Take frames to the consumer's destination."""
        raise NotImplementedError

    def skip(self, first: int, count: int, now: float) -> None:
        """Take numbers of frames to other destinations."""
        raise NotImplementedError

    def take_page(self, page: CatchUpPage, source: int, now: float) -> None:
        """Take a keeper's page of this ledger."""
        raise NotImplementedError

    def note_end(self, end: int, now: float) -> None:
        """Learn that the ledger was closed, and has nothing from a sequence on. What is handed out needs no end."""

    def advance(self, now: float) -> None:
        """Deliver what can be delivered."""
        raise NotImplementedError

    def turn(self, now: float) -> None:
        """Ask for what is missing, if it is time."""
        raise NotImplementedError

    def forget(self) -> None:
        """Give up all that waits."""
        raise NotImplementedError

    def _deliver(self, first: int, frames: Sequence[F], *, is_redelivered: bool) -> None:
        consumer = self.consumer
        end = first + len(frames)
        consumer.room -= end - first
        self.acks.outstanding.add(first, end)
        self.context.events.append(Deliver(consumer.handle, self.ledger, first, frames, is_redelivered))

    def _note_answer(self, source: int) -> None:
        """Note that a keeper has answered the last question. It gets the next one, which may be asked at once."""
        self.asked_at = -RETRY_S
        self.answered_by = source

    def _ask_another(self, first: int, now: float) -> None:
        """Ask another keeper than the one that has answered, if there is one."""
        silent, self.answered_by = self.answered_by, 0
        self._ask(first, now, (silent,))

    def _ask(self, first: int, now: float, heard: Container[int] = ()) -> None:
        """Ask the keeper that has answered, or else any one, if possible one that was not heard.

        Several keepers would send one page each: the slowest of them would have the consumer wait for the first page
        while it holds the others. Whoever does not answer is not asked again.
        """
        self.asked_at = now
        preferred, self.answered_by = self.answered_by, 0
        consumer = self.consumer
        self.context.ask(
            consumer.session,
            consumer.number,
            self.ledger,
            first,
            is_exact=True,
            heard=heard,
            preferred=preferred,
        )


class ConsumerBase(Generic[F]):
    """The part of a consumer that its readers use."""

    def __init__(self, handle: int, request: Subscribe) -> None:
        self.handle: Final = handle
        self.request: Final = request
        self.session: Final = request.session
        self.frame_hash: Final = request.destination.frame_hash
        self.is_shared: Final = bool(request.flags & SubscriptionFlag.SHARED)
        self.number = 0
        """Number by which the cell knows the consumer; 0 before it does."""
        self.room = 0
        """Number of messages that the owner takes."""
        self.table_version = 0
        """Version of the table that has the subscription."""
        self.is_resumed = True
        """True if the subscription may have had a consumer before."""
        self.readers: dict[Ledger, Reader[F]] = {}
        self.paused: dict[Reader[F], None] = {}
        """Readers that go on when there is room."""
        self.dirty: dict[Reader[F], None] = {}
        """Readers that have something to be acknowledged."""

    def is_handed(self, ledger: Ledger) -> bool:
        """Return True if the cell hands out the messages of a ledger: to one of several consumers, or when they are
        due."""
        return self.is_shared or ledger.is_delayed

    def open_reader(self, ledger: Ledger, now: float) -> "Reader[F] | None":
        """Return the reader of a ledger. Return None if there are too many."""
        raise NotImplementedError

    def has_read(self, ledger: Ledger, now: float) -> bool:
        """Return True if everything of a ledger was delivered, and nothing follows. Otherwise see that it is read."""
        raise NotImplementedError


class FrameRoutes(Generic[F]):
    """Finds the readers of a frame, by its ledger and destination."""

    def __init__(self) -> None:
        self._by_ledger: dict[Ledger, list[Reader[F]]] = {}
        self._by_hash: dict[int, list[ConsumerBase[F]]] = {}

    def add(self, consumer: ConsumerBase[F]) -> None:
        """Pass frames to a consumer from now on."""
        self._by_hash.setdefault(consumer.frame_hash, []).append(consumer)

    def remove(self, consumer: ConsumerBase[F]) -> None:
        """Pass a consumer no more frames."""
        consumers = self._by_hash.get(consumer.frame_hash, [])
        if consumer in consumers:
            consumers.remove(consumer)
            if not consumers:
                del self._by_hash[consumer.frame_hash]

    def add_reader(self, reader: Reader[F]) -> None:
        """Pass the frames of a ledger to a reader."""
        self._by_ledger.setdefault(reader.ledger, []).append(reader)

    def remove_reader(self, reader: Reader[F]) -> None:
        """Pass a reader no more frames."""
        readers = self._by_ledger[reader.ledger]
        readers.remove(reader)
        if not readers:
            del self._by_ledger[reader.ledger]

    def hear(self, frame_hash: int, ledger: Ledger, first: int, frames: Sequence[F], now: float) -> None:
        """Pass on consecutive frames of one ledger to one destination."""
        for consumer in self._by_hash.get(frame_hash, ()):
            if ledger not in consumer.readers:
                consumer.open_reader(ledger, now)
        for reader in self._by_ledger.get(ledger, ()):
            if reader.frame_hash == frame_hash:
                reader.hear(first, frames, now)
            else:
                reader.skip(first, len(frames), now)

    def close(self, ledger: Ledger, end: int, now: float) -> None:
        """Pass on that a ledger was closed, and has nothing from a sequence on."""
        for reader in self._by_ledger.get(ledger, ()):
            reader.note_end(end, now)

    def skip(self, ledger: Ledger, first: int, count: int, now: float) -> None:
        """Pass on consecutive numbers of frames to destinations that nobody here reads."""
        for reader in self._by_ledger.get(ledger, ()):
            reader.skip(first, count, now)


class Context(Generic[F]):
    """The connection's state that sessions, consumers and their readers use."""

    def __init__(self, node_id: int, random: Random, detach: Callable[[F], tuple[F, int]]) -> None:
        self.node_id: Final = node_id
        self.random: Final = random
        self.frames: Final = FrameRoom(detach)
        self.choice = CellChoice()
        self.line = RequestLine()
        self.trust: Final = Trust()
        self.events: deque[Event[F]] = deque()
        self.messages: deque[Outgoing] = deque()
        self.table_version = 0
        """Newest version of the table that was heard of."""
        self.routes: FrameRoutes[F] = FrameRoutes()
        self.behind: dict[Reader[F], None] = {}
        """Readers that lack something, and have room for it."""
        self.attached: list[ConsumerBase[F]] = []
        """Consumers that have got their subscriptions, and that nobody has looked at since."""
        self.added: dict[SubscriptionKey, None] = {}
        """Subscriptions that the entry which is being read has made."""
        self.renew_at = 0.0
        """Time at which leases are renewed."""

    @property
    def cell_id(self) -> int:
        """Id of the cell; 0 if none was heard."""
        return 0 if self.choice.heartbeat is None else self.choice.heartbeat.cell_id

    @property
    def majority(self) -> int:
        """Number of keepers of which one at least has a message that W have stored: W of K, and at least one."""
        return len(() if self.choice.heartbeat is None else self.choice.heartbeat.members) // 2 + 1

    def note_answer(self, session: int, round_: int) -> None:
        """Note that a session holds or has ended, by an answer of a round of questions."""
        if self.trust.settle(session, round_):
            self.events.append(SessionsKept())

    def note_behind(self, reader: Reader[F]) -> None:
        """Note that a reader lacks something."""
        if reader.consumer.room:
            self.behind[reader] = None
        else:
            reader.consumer.paused[reader] = None

    def ask(
        self,
        session: int,
        consumer: int,
        ledger: Ledger,
        first: int,
        *,
        is_exact: bool,
        heard: Container[int] = (),
        preferred: int = 0,
    ) -> None:
        """Ask one of the keepers for a page of what a consumer is to get."""
        heartbeat = self.choice.heartbeat
        members = () if heartbeat is None else heartbeat.members
        keepers = [each.node_id for each in members if each.flags & MemberFlag.LIVE and each.node_id]
        if not keepers:
            return
        if is_exact:
            self.events.append(ListenToReplays())
        keepers = [node for node in keepers if node not in heard] or keepers
        query = CatchUpQuery(
            is_exact=is_exact,
            reply_to=self.node_id,
            keeper_node=preferred if preferred in keepers else self.random.choice(keepers),
            consumer=consumer,
            cell_id=self.cell_id,
            session=session,
            ledger=ledger,
            first=first,
        )
        self.messages.append(SendCommand(query))
