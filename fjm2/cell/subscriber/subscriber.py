"""The subscribers of one connection at its cell, without I/O: `Subscriber`.

The owner passes in what it hears, asks for sessions and consumers, and calls `handle_timeout` at `poll_timeout`. After
each call it polls messages and events until there are none. Times are monotonic seconds of any origin.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from random import Random
from typing import Final, Generic

from fjm2.base.ledger import Ledger

from ..client.cell_choice import Drop, Heard
from ..outgoing import SendCommand
from ..wire.catch_up import CatchUpPage
from ..wire.commands import Heartbeat, decode_command
from ..wire.leases import LEASES_MAX, encode_leases
from ..wire.requests import Place, Subscribe, SubscriptionFlag
from .consumer import Consumer
from .consumer_acks import Acked
from .context import Context
from .decisions import Decisions
from .marks import Marks
from .outgoing import Event, F, Loss, Outgoing, SendLeases
from .request_line import NEVER
from .session import ClientSession, SessionState
from .tenure import Tenure
from .trust import RENEW_S

TURN_S: Final = 0.02
"""Interval at which consumers that lack something are looked at."""
TURNS_AT_ONCE: Final = 64
"""Most ledgers that are looked at in one turn."""
CREDIT: Final = 256
"""Most messages that a consumer of a shared subscription holds."""
_TOPIC: Final = 0
"""Kind flags of a topic that is not temporary."""


class Subscriber(Generic[F]):
    """The sessions and durable consumers of one connection.

    Sessions and consumers are named by numbers that the calls return. All calls return at once; events tell what became
    of them. A call about a session or a consumer that has ended is ignored, and no event follows.

    Requests are frames in the connection's own ledger. The cell decides them in their order, and each is carried out
    once: a request that the cell had no room for is sent again, behind those that it must not overtake. Within a
    session, consumers come and go one at a time, after all acknowledgements that were asked for before.
    Acknowledgements that are asked for while one is on its way go into one request; while four are, if the cell hands
    the messages out. A client that waits for each acknowledgement by itself may have more of them on their way.

    `F` is the owner's type of a frame. A consumer gets each frame of its subscription once, by ledger and sequence, and
    those of a ledger in order, whatever the owner passes in and in whatever order. A frame that is heard in order is
    passed on as the owner's sequence has it, whole runs at once. What cannot be passed on is copied by `detach` if
    there is room for it, or forgotten, and comes again from a keeper.
    """

    def __init__(self, node_id: int, random: Random, detach: Callable[[F], tuple[F, int]]) -> None:
        """Send queries from a node, at which pages are heard. `detach` returns a copy of a frame that keeps nothing
        else in memory, and its size in bytes."""
        self._context: Context[F] = Context(node_id, random, detach)
        self._sessions: dict[int, ClientSession[F]] = {}
        """Sessions that have not ended."""
        self.tenure: Final = Tenure(self._context, self._sessions)
        """Time for which the cell keeps the open sessions. After it the owner uses nothing that it got."""
        self._marks = Marks(self._context)
        self._decisions = Decisions(self._context, self._marks, self._sessions)
        self._consumers: dict[int, Consumer[F]] = {}
        """All consumers that have not ended, by the numbers that the owner knows."""
        self._handle = 0
        self._turn_at = 0.0

    # Calls of the application

    def open_session(self, mode: int, client_id: str, now: float) -> int:
        """Open a session. Return its number. `mode` is JMS's acknowledgement mode, `client_id` may be empty.

        `SessionOpened`, `SessionRefused` or `SessionLost` follows. Consumers may be asked for at once.
        """
        number = self._context.random.getrandbits(64) or 1
        self._sessions[number] = ClientSession(self._context, self._sessions, number, mode, client_id)
        self._pump(number, now)
        return number

    def close_session(self, session: int, now: float) -> None:
        """Close a session with its consumers. `SessionClosed` follows. What was not acknowledged comes again to
        others."""
        found = self._sessions.get(session)
        if found is not None:
            found.close()
            self._pump(session, now)

    def create_consumer(
        self,
        session: int,
        flags: SubscriptionFlag,
        topic: str,
        name: str,
        selector: str,
        now: float,
        *,
        credit: int = CREDIT,
    ) -> int:
        """Create a consumer of a subscription, and the subscription if there is none. Return its number.

        `ConsumerReady` or `ConsumerRefused` follows. Another topic, selector or `NO_LOCAL` than before makes the
        subscription new. The consumer gets nothing until it has room. Selector and `NO_LOCAL` are the owner's to apply:
        it acknowledges what does not match. A consumer of a shared subscription holds at most `credit` messages. A
        shared subscription that is not durable ends with its last consumer.
        """
        self._handle += 1
        found = self._sessions.get(session)
        if found is not None:
            request = Subscribe(session, int(flags), credit, Place(_TOPIC, topic), name, selector)
            consumer = self._consumers[self._handle] = Consumer(self._context, self._handle, request)
            found.add_consumer(consumer)
            self._pump(session, now)
        return self._handle

    def close_consumer(self, consumer: int, now: float) -> None:
        """Close a consumer. `ConsumerClosed` follows. What it did not acknowledge comes again to the next one."""
        found = self._consumers.get(consumer)
        session = None if found is None else self._sessions.get(found.session)
        if found is not None and session is not None:
            session.close_consumer(found)
            self._pump(found.session, now)

    def unsubscribe(self, session: int, name: str, now: float) -> int:
        """End a durable subscription. Return the number of this call, which `Unsubscribed` names."""
        self._handle += 1
        found = self._sessions.get(session)
        if found is not None:
            found.unsubscribe(name, self._handle)
            self._pump(session, now)
        return self._handle

    def number_of(self, consumer: int) -> int:
        """Return the number by which the cell knows a consumer; 0 before it does, and when the consumer has ended."""
        found = self._consumers.get(consumer)
        return 0 if found is None else found.number

    def set_room(self, consumer: int, messages: int, now: float) -> None:
        """Set the number of messages that a consumer takes from now on. Each one that it gets takes one of them.

        Without room nothing is kept in memory but what keepers were asked for, within `HELD_BYTES_MAX`. What comes
        meanwhile is fetched from keepers when there is room again.
        """
        found = self._consumers.get(consumer)
        if found is not None:
            found.set_room(messages, now)
            found.discover(now)

    def acknowledge(self, consumer: int, ranges: Iterable[Acked], now: float) -> int:
        """Acknowledge messages that were delivered to a consumer, in any order: ledger, first and last sequence of each
        run.

        Return the number of this call, which `AcknowledgementDecided` names. Calls of one consumer are decided in their
        order. Messages that were not delivered, or were acknowledged before, are ignored.
        """
        self._handle += 1
        found = self._consumers.get(consumer)
        if found is not None:
            found.acks.acknowledge(self._handle, ranges)
            found.acks.settle()
            self._pump(found.session, now)
        return self._handle

    def give_back(self, consumer: int, ranges: Iterable[Acked], now: float) -> int:
        """Give messages back that were delivered to a consumer of a shared subscription. Others get them, flagged.

        Return the number of this call, which `AcknowledgementDecided` names. Raises ValueError for a subscription that
        is not shared: its messages come again when the consumer is closed.
        """
        self._handle += 1
        found = self._consumers.get(consumer)
        if found is not None:
            if not found.is_shared:
                raise ValueError(f"{consumer=} has a subscription of its own: expected one of a shared subscription")
            session = self._sessions[found.session]
            session.give_back(found.acks.give_back(self._handle, ranges))
            found.acks.settle()
            self._pump(found.session, now)
        return self._handle

    # Input

    def receive_command(self, content: bytes, source: int, now: float) -> None:
        """Take a NORM_CMD(APPLICATION) from a node: heartbeats and pages. Others are ignored."""
        message = decode_command(content)
        match message:
            case Heartbeat():
                self._receive_heartbeat(message, source, now)
            case CatchUpPage():
                self._receive_page(message, source, now)
            case _:
                pass

    def receive_entry(self, epoch: int, index: int, data: bytes, now: float) -> None:
        """Take an entry of the decision log: producer epoch, sequence and body of a frame to FJM2.DECISIONS, of the
        ledger whose producer id is `cell_id`."""
        self._decisions.receive_entry(epoch, index, data, now)
        self._forget_ended()

    def receive_frames(self, frame_hash: int, ledger: Ledger, first: int, frames: Sequence[F], now: float) -> None:
        """Take consecutive frames of one ledger and destination, heard from their publisher or from a keeper.

        `frame_hash` is the hash of the destination. Frames need a slice, and are not changed afterwards. The frames of
        a ledger are passed in as they come, without waiting for those that are missing.
        """
        self._context.routes.hear(frame_hash, ledger, first, frames, now)

    def receive_others(self, ledger: Ledger, first: int, count: int, now: float) -> None:
        """Take consecutive numbers of frames to destinations that no consumer here reads. They may be passed in by
        `receive_frames` as well."""
        self._context.routes.skip(ledger, first, count, now)

    def note_sent(self, number: int, ledger: Ledger, sequence: int, now: float) -> None:
        """Note the place of a request, before anything is passed in that was heard after it was sent."""
        decision = self._context.line.note_sent(number, ledger, sequence, now)
        self._marks.note_sent(number, ledger, sequence)
        if decision is not None:
            self._decisions.tell(decision, now)

    def note_unsent(self, number: int, now: float) -> None:
        """Note that a request could not be sent. It comes again."""
        self._marks.note_unsent(number)
        decision = self._context.line.note_unsent(number, now)
        if decision is not None:
            self._decisions.tell(decision, now)

    def note_stored(self, ledger: Ledger, through: int, now: float) -> None:
        """Note that W members have a ledger of this connection on disk, by the newest table that was heard of."""
        del now
        self._marks.note_stored(ledger, through)

    def handle_timeout(self, now: float) -> None:
        """Renew leases, and ask for what is missing."""
        context = self._context
        self._renew(now)
        context.line.unblock(now)
        context.line.nudge(now)
        fetch = self._decisions.reader.poll_fetch(context.node_id, now)
        if fetch is not None:
            context.messages.append(SendCommand(fetch))
        if now >= self._turn_at:
            self._turn_at = now + TURN_S
            for reader in list(islice(context.behind, TURNS_AT_ONCE)):
                del context.behind[reader]
                reader.advance(now)
            for consumer in list(self._consumers.values()):
                consumer.discover(now)
        for session in list(self._sessions):
            self._pump(session, now)
        self._collect_messages()

    # Output

    @property
    def cell_id(self) -> int:
        """Id of the cell; 0 if none was heard."""
        return self._context.cell_id

    @property
    def held_bytes(self) -> int:
        """Bytes of all frames that wait for others, or to be handed to a consumer."""
        return self._context.frames.bytes

    def poll_message(self) -> Outgoing | None:
        """Return the next message to send."""
        self._collect_messages()
        return self._context.messages.popleft() if self._context.messages else None

    def poll_event(self) -> Event[F] | None:
        """Return the next event."""
        return self._context.events.popleft() if self._context.events else None

    def poll_timeout(self) -> float:
        """Return the time at which to call `handle_timeout`, or infinity. Any call may change it."""
        context = self._context
        if not self._sessions:
            return NEVER
        times = [context.renew_at, context.line.poll_timeout()]
        times += [self._turn_at] if context.behind else []
        for consumer in self._consumers.values():
            times.append(consumer.acks.next_at)
            times.append(max(consumer.discover_at, self._turn_at))
        times.append(self._decisions.reader.poll_timeout())
        if any(session.is_blocked for session in self._sessions.values()):
            times.append(context.line.poll_unblocked())
        return min(times)

    # Sessions

    def _pump(self, session: int, now: float) -> None:
        found = self._sessions.get(session)
        if found is not None and self._context.cell_id:
            found.pump(now)

    def _collect_messages(self) -> None:
        line = self._context.line
        if line.messages:
            self._context.messages += line.messages
            line.messages.clear()

    def _renew(self, now: float) -> None:
        """Renew the leases of open sessions."""
        context = self._context
        if now < context.renew_at:
            return
        context.renew_at = now + RENEW_S
        self.tenure.note_renewal(now)
        manager = context.choice.manager_node
        numbers = [each.number for each in self._sessions.values() if each.state is SessionState.OPEN]
        for at in range(0, len(numbers) if manager else 0, LEASES_MAX):
            context.messages.append(SendLeases(manager, encode_leases(tuple(numbers[at : at + LEASES_MAX]))))

    # Cell

    def _receive_heartbeat(self, heartbeat: Heartbeat, source: int, now: float) -> None:
        context = self._context
        heard = context.choice.hear(heartbeat, source, now)
        if isinstance(heard, Drop):
            return
        if heard is Heard.OTHER:
            self._decisions.lose_all(Loss.REPLACED)
            self._decisions = Decisions(context, self._marks, self._sessions)
            context.table_version = 0
        self.tenure.note_heard(now)
        context.table_version = max(context.table_version, heartbeat.table_version)
        self._decisions.receive_heartbeat(heartbeat, now)
        self._forget_ended()
        self._marks.receive_heartbeat(heartbeat.table_version)
        for session in list(self._sessions):
            self._pump(session, now)

    def _forget_ended(self) -> None:
        for handle in [handle for handle, each in self._consumers.items() if each.has_ended]:
            del self._consumers[handle]

    def _receive_page(self, page: CatchUpPage, source: int, now: float) -> None:
        context = self._context
        if page.reply_to != context.node_id or page.cell_id != context.cell_id:
            return
        session = self._sessions.get(page.session)
        consumer = None if session is None else session.consumer_at(page.consumer)
        if consumer is not None:
            consumer.receive_page(page, source, now)
