"""A connection's part in the service of a cell: drives its `Subscriber` on asyncio."""

import asyncio
import contextlib
import math
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from fjm2.base.errors import FJM2Error
from fjm2.base.ledger import Ledger
from fjm2.base.loop import call_not_before
from fjm2.base.ranges import RangeSet
from fjm2.cell.outgoing import SendCommand
from fjm2.cell.service.reasons import Reason
from fjm2.cell.subscriber.outgoing import (
    AcknowledgementDecided,
    ConsumerClosed,
    ConsumerReady,
    ConsumerRefused,
    Deliver,
    Event,
    ListenToReplays,
    Outgoing,
    SendLeases,
    SendRequest,
    SessionClosed,
    SessionLost,
    SessionOpened,
    SessionRefused,
    SessionsKept,
    Unsubscribed,
)
from fjm2.cell.subscriber.subscriber import Subscriber
from fjm2.cell.wire.leases import LEASES_TYPE
from fjm2.cell.wire.requests import Ack, decode_request
from fjm2.messages.frame import Frame, frame_alone

from ..sends.cell_driver import CellDriver
from .consumer import DurableConsumer, SessionOwner
from .hub import DurableHub
from .inbox import DurableInbox
from .lease import Lease

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

    from ..sends.cell_driver import StoringConnection


class DurableClient:
    """The durable sessions and consumers of one connection. Implements `Hearing`."""

    def __init__(self, bus: "Bus", driver: CellDriver, connection: "StoringConnection") -> None:
        self.bus: Final = bus
        self.driver: Final = driver
        self.consumers: Final[dict[int, DurableConsumer]] = {}
        """Consumers that the cell knows, or is asked for, by handle."""
        self.sessions: Final[dict[int, SessionOwner]] = {}
        """Sessions that the cell knows, or is asked for, by number."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._subscriber: Subscriber[Frame] = Subscriber(bus.node_id, Random(), _detached)
        self._decisions: dict[int, tuple[int, asyncio.Future[Reason]]] = {}
        """Session, and result, of acknowledgements and of unsubscribing, by number."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_settling = False
        self._lease = Lease(self.settle_soon)
        hub = driver.listener
        self._hub = hub if isinstance(hub, DurableHub) else DurableHub(bus, driver)
        self._hub.add(self)
        gate = driver.gate_of(connection)
        if gate is not None:
            gate.is_kept_open = lambda lane: not lane and bool(self.sessions)

    @property
    def hashes(self) -> frozenset[int]:
        return frozenset(each.wanted.topic.frame_hash for each in self.consumers.values())

    # Hearing.

    def hear_command(self, node_id: int, content: bytes, now: float) -> None:
        self._subscriber.receive_command(content, node_id, now)

    def hear_frames(self, frame_hash: int, ledger: Ledger, first: int, frames: list[Frame], now: float) -> None:
        self._subscriber.receive_frames(frame_hash, ledger, first, frames, now)

    def hear_others(self, ledger: Ledger, first: int, count: int, now: float) -> None:
        self._subscriber.receive_others(ledger, first, count, now)

    def hear_entry(self, ledger: Ledger, index: int, data: bytes, now: float) -> None:
        if ledger.producer_id == self._subscriber.cell_id:
            self._subscriber.receive_entry(ledger.producer_epoch, index, data, now)

    # Asking.

    def open_session(self, session: SessionOwner, client_id: str) -> int:
        """Ask for a session. Return its number."""
        number = self._subscriber.open_session(int(session.mode), client_id, self._loop.time())
        self.sessions[number] = session
        self.settle_soon()
        return number

    def close_session(self, number: int) -> None:
        """Ask to end a session."""
        self._subscriber.close_session(number, self._loop.time())
        self.settle_soon()

    def subscribe(self, consumer: DurableConsumer, session: int) -> "asyncio.Future[Reason | int]":
        """Ask for a consumer. Return a future of the outcome."""
        wanted, now = consumer.wanted, self._loop.time()
        handle = self._subscriber.create_consumer(
            session, wanted.flags, wanted.topic.name, wanted.name, wanted.selector, now
        )
        consumer.handle, consumer.session_number = handle, session
        consumer.outcome = self._loop.create_future()
        self.consumers[handle] = consumer
        consumer.inbox.lease = self._lease
        self._hub.want()
        self.set_room(consumer)
        return consumer.outcome

    def close_consumer(self, consumer: DurableConsumer) -> "asyncio.Future[None]":
        """Ask to end a consumer. Return a future of its end."""
        if consumer.closed is None:
            consumer.closed = self._loop.create_future()
            if consumer.handle in self.consumers:
                self._subscriber.close_consumer(consumer.handle, self._loop.time())
                self.settle_soon()
            else:
                consumer.closed.set_result(None)
        return consumer.closed

    def unsubscribe(self, session: int, name: str) -> "asyncio.Future[Reason]":
        """Ask to end a subscription."""
        return self._decision(session, self._subscriber.unsubscribe(session, name, self._loop.time()))

    def acknowledge(self, consumer: DurableConsumer, done: dict[Ledger, RangeSet]) -> "asyncio.Future[Reason]":
        """Ask to acknowledge messages."""
        ranges = [(ledger, first, end - 1) for ledger, each in done.items() for first, end in each]
        number = self._subscriber.acknowledge(consumer.handle, ranges, self._loop.time())
        decision = self._decision(consumer.session_number, number)
        settling = consumer.settling
        if settling is not None:
            decision.add_done_callback(lambda _: consumer.inbox.end_settling(settling))
        return decision

    def set_room(self, consumer: DurableConsumer) -> None:
        """Tell how many messages a consumer takes."""
        if consumer.handle in self.consumers:
            self._subscriber.set_room(consumer.handle, consumer.inbox.room, self._loop.time())
            self.settle_soon()

    def _decision(self, session: int, number: int) -> "asyncio.Future[Reason]":
        decision: asyncio.Future[Reason] = self._loop.create_future()
        self._decisions[number] = session, decision
        self.settle_soon()
        return decision

    # Driving.

    def settle_soon(self) -> None:
        """Do what follows once this turn of the loop is over."""
        if not self._is_settling:
            self._is_settling = True
            self._loop.call_soon(self._settle_now)

    def _settle_now(self) -> None:
        self._is_settling = False
        self.settle()

    def settle(self) -> None:
        """Send and tell everything, and set the timer."""
        subscriber, now = self._subscriber, self._loop.time()
        if self._lease.has_run_out:
            subscriber.tenure.doubt(now)
        while True:
            event, message = subscriber.poll_event(), subscriber.poll_message()
            if event is not None:
                self._handle(event)
            if message is not None:
                self._send(message)
            if event is None and message is None:
                break
        self._lease.extend(subscriber.tenure.until - now)
        if self._timer is not None:
            self._timer.cancel()
        at = subscriber.poll_timeout()
        self._timer = None if at == math.inf else call_not_before(self._loop, at, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._subscriber.handle_timeout(self._loop.time())
        self.settle()

    def _send(self, message: Outgoing) -> None:
        session = self.bus.lanes.session
        match message:
            case SendRequest(number, body):
                self._send_request(number, body)
            case SendLeases(to_node, content):
                with contextlib.suppress(FJM2Error):  # the lane may be closing
                    session.send_ack(to_node, LEASES_TYPE, content)
            case SendCommand(command):
                with contextlib.suppress(FJM2Error):
                    session.send_command(command.encode())

    def _send_request(self, number: int, body: bytes) -> None:
        now = self._loop.time()
        try:
            sent = self.driver.send_request(self._connection, body)
        except FJM2Error:
            self._subscriber.note_unsent(number, now)
            return
        self._subscriber.note_sent(number, sent.ledger, sent.sequence, now)
        sent.stored.add_done_callback(partial(self._note_stored, sent.ledger, sent.sequence))
        request = decode_request(body)
        session = request.session if isinstance(request, Ack) else None
        for consumer in self.consumers.values():
            if consumer.settling is not None and consumer.session_number == session:
                sent.stored.add_done_callback(partial(_end_settling, consumer.inbox, consumer.settling))
                consumer.settling = None

    def _note_stored(self, ledger: Ledger, sequence: int, stored: "asyncio.Future[None]") -> None:
        if not stored.cancelled() and stored.exception() is None:
            self._subscriber.note_stored(ledger, sequence, self._loop.time())
            self.settle_soon()

    def _handle(self, event: Event[Frame]) -> None:
        match event:
            case Deliver(handle, ledger, first, frames, is_redelivered):
                consumer = self.consumers.get(handle)
                if consumer is not None:
                    consumer.inbox.take_frames(ledger, first, frames, is_redelivered=is_redelivered)
                    self.set_room(consumer)
            case AcknowledgementDecided(number, reason) | Unsubscribed(number, reason):
                _, decision = self._decisions.pop(number, (0, None))
                _tell(decision, reason)
            case ConsumerReady(handle, table_version):
                _tell(self.consumers[handle].outcome, table_version)
            case ConsumerRefused(handle, reason):
                self._forget(handle, reason)
            case ConsumerClosed(handle):
                self._forget(handle, Reason.NO_CONSUMER)
            case SessionOpened(number):
                self.sessions[number].note_opened()
            case SessionRefused(number, reason):
                self._end_session(number, reason)
            case SessionClosed(number):
                self._end_session(number, Reason.NO_SESSION)
            case SessionLost(number):
                self._end_session(number, Reason.NO_SESSION)
            case SessionsKept():
                self._end_hold()
            case ListenToReplays():
                self._hub.listen_to_replays()

    def _end_hold(self) -> None:
        """Deliver again what the consumers hold."""
        self._lease.extend(self._subscriber.tenure.until - self._loop.time())
        for consumer in self.consumers.values():
            consumer.inbox.end_hold()

    def _forget(self, handle: int, reason: Reason) -> None:
        consumer = self.consumers.pop(handle, None)
        if consumer is not None:
            self._hub.want()
            _tell(consumer.outcome, reason)
            consumer.lose_place()

    def _end_session(self, number: int, reason: Reason) -> None:
        session = self.sessions.pop(number, None)
        if session is None:
            return
        lost = [each for each in session.consumers if each.handle in self.consumers]
        for consumer in lost:
            self._forget(consumer.handle, Reason.NO_SESSION)
        for key, (of, decision) in list(self._decisions.items()):
            if of == number:
                del self._decisions[key]
                _tell(decision, Reason.NO_SESSION)
        session.note_ended(reason, lost)

    async def close(self) -> None:
        """Hear and say nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        for _, decision in self._decisions.values():
            decision.cancel()
        await self._hub.remove(self)


def _end_settling(inbox: DurableInbox, settling: "asyncio.Future[None]", stored: "asyncio.Future[None]") -> None:
    """Let an inbox go on if its acknowledgement is stored."""
    if not stored.cancelled() and stored.exception() is None:
        inbox.end_settling(settling)


def _detached(frame: Frame) -> tuple[Frame, int]:
    """Return a frame that keeps nothing else in memory, and its size."""
    buffer, start, _, end, _ = frame
    return frame_alone(buffer[start:end]), end - start


def _tell(future: "asyncio.Future[Reason] | asyncio.Future[Reason | int] | None", value: Reason | int) -> None:
    if future is not None and not future.done():
        future.set_result(value)  # type: ignore[arg-type]
