"""Everything that deals with a bus's cell once one is heard: what comes from keepers goes to `CellView`, and what that
tells goes to the gates of connections."""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Callable
from random import Random
from time import time_ns
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from fjm2.base.errors import NormError
from fjm2.base.ledger import Ledger
from fjm2.base.loop import call_not_before
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.gates.gated_publication import Gate
from fjm2.bus.ledgers.destinations import REQUESTS
from fjm2.bus.ledgers.ledger_gate import LedgerGate
from fjm2.bus.ledgers.ledger_room import LedgerRoom
from fjm2.cell.client.cell_view import CellView
from fjm2.cell.client.outgoing import (
    AskTable,
    CellHeard,
    CellReplaced,
    Confirmed,
    Event,
    GaveUp,
    KeeperLost,
    LedgerClosed,
    LedgerFinal,
    Outgoing,
    Reason,
    TableLearned,
)
from fjm2.cell.wire.commands import Heartbeat
from fjm2.cell.wire.stored import STORED_TYPE
from fjm2.cell.wire.table import TableHashes, TableQuery
from fjm2.messages.destination import Destination, Topic
from fjm2.messages.errors import JMSError, ResourceAllocationError
from fjm2.messages.frame import FrameWriter, Parts
from fjm2.messages.header import PERSISTENT, Kind
from fjm2.norm.events import AckReceived

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus
    from fjm2.bus.lane import Lane
    from fjm2.norm import OutgoingStream

_REST_S: Final = 25.0
"""Interval at which ledgers end that got no message. Such a ledger has rested for 50 s at most: keepers close it after
60 s, and would refuse what comes then."""

NumberedListener: TypeAlias = Callable[[Destination, Ledger, int, list[bytes]], None]
"""Function that is called with a destination, a ledger, the first sequence, and frames that were just numbered."""
REQUEST_PRIORITY: Final = 4
"""Priority of requests: the default, so that they are in one ledger with most messages of their client."""


class LedgerOwner(Protocol):
    """Somebody who numbers messages in ledgers of its own, and is told what the cell says of them: an outbox."""

    on_numbered: NumberedListener | None
    """Called as that of a gate is."""

    @property
    def producer_id(self) -> int: ...

    def handle_cell(self, driver: "CellDriver") -> None:
        """Note that a cell was heard, or that another one has taken its place."""

    def handle_event(self, event: Confirmed | GaveUp | LedgerClosed | LedgerFinal) -> None:
        """Take news of a ledger."""

    def rest(self) -> None:
        """End the ledgers that got no message since the last call, and are stored."""


class StoringConnection(Protocol):
    """A connection whose messages keepers store."""

    @property
    def ledger_owner(self) -> LedgerOwner | None:
        """Somebody who numbers the messages of the connection instead of its gate."""

    @property
    def confirm_timeout_s(self) -> float:
        """Time for which a message waits until it is stored."""

    def use_gate(self, gate: Gate) -> None:
        """Pass all messages through the gate of a cell from now on, those that are held first."""

    def expect_cell(self) -> None:
        """Hold messages back until a cell serves, for as long as its keepers may be silent."""

    def expect_none(self) -> None:
        """Publish everything without a gate."""


class CellListener(Protocol):
    """Somebody else who hears the cell, and what the connections of this process send."""

    def hear_command(self, node_id: int, content: bytes) -> None:
        """Take a heartbeat."""

    def note_gate(self, gate: LedgerGate | LedgerOwner) -> None:
        """Note the gate of another connection."""


class SentRequest(NamedTuple):
    """A request to the cell that was sent."""

    ledger: Ledger
    sequence: int
    stored: "asyncio.Future[None]"
    """Done when W keepers have it on disk."""


class CellDriver:
    """Drives the view of a cell, and the gates of connections."""

    def __init__(self, bus: "Bus") -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._view = CellView(Random())
        self.room: Final = LedgerRoom(bus.config.sender.stream_bytes)
        """Room on the way to the keepers, which all share."""
        self.let_keepers_hear: Final = bus.lanes.keep
        """Lets keepers hear a lane, before the first message with a number is sent there."""
        self._producers: dict[StoringConnection, int] = {}
        """Producer ids of the connections."""
        self._gates: dict[int, LedgerGate] = {}
        """Gates by producer id. There are none before a cell is heard."""
        self._owners: dict[int, LedgerOwner] = {}
        """Owners of ledgers by producer id, when a cell is heard."""
        self._held: dict[StoringConnection, LedgerGate] = {}
        """Gates of connections that hold their messages back until the first table is known."""
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = math.inf
        self._resting: asyncio.TimerHandle | None = None
        self.listener: CellListener | None = None
        """Gets the heartbeats too, and new gates. None if nobody wants them."""
        self._requests = FrameWriter(secrets.randbits(64))
        bus.lanes.signals.hear_commands(TableHashes.kind, self.hear_command)
        bus.lanes.signals.hear_acks(STORED_TYPE, self._hear_stored)

    @property
    def is_heard(self) -> bool:
        """True once a cell was heard. It stays true."""
        return self._view.is_heard

    @property
    def lacks_table(self) -> bool:
        """True if a cell was heard, and its newest table is not known yet."""
        return self._view.is_heard and not self._view.is_known

    @property
    def heartbeat(self) -> Heartbeat | None:
        """Newest heartbeat of the cell's manager; None before a cell is heard."""
        return self._view.heartbeat

    def join(self, connection: StoringConnection) -> None:
        """Put a gate in front of a connection, now or when a cell is heard."""
        self._producers[connection] = secrets.randbits(64)
        if self.is_heard:
            self._install(connection)

    def leave(self, connection: StoringConnection) -> None:
        """Let the messages of a connection fail that are not stored."""
        producer_id = self._producers.pop(connection)
        self._held.pop(connection, None)
        self._view.remove_writer(producer_id)
        if connection.ledger_owner is not None:
            self._view.remove_writer(connection.ledger_owner.producer_id)
            self._owners.pop(connection.ledger_owner.producer_id, None)
        gate = self._gates.pop(producer_id, None)
        if gate is not None:
            gate.close(
                UnconfirmedError(
                    "the connection was closed before keepers said that the message is stored; send it again if a "
                    "duplicate does no harm"
                )
            )

    def close(self) -> None:
        """Hear no more."""
        self._bus.lanes.signals.hear_commands(TableHashes.kind, None)
        self._bus.lanes.signals.hear_acks(STORED_TYPE, None)
        for handle in (self._timer, self._resting):
            if handle is not None:
                handle.cancel()

    # Requests

    @property
    def gates(self) -> tuple[LedgerGate | LedgerOwner, ...]:
        """Everything that numbers messages of the connections."""
        return (*self._gates.values(), *self._owners.values())

    @property
    def has_live_keepers(self) -> bool:
        """True if the manager hears members."""
        return bool(self._view.keepers)

    def keepers_of(self, topic: Topic) -> int:
        """Return the number of keepers that the manager hears, if they are known to store what is sent to a topic."""
        return len(self._view.keepers) if self._view.is_known and self._view.is_stored(topic.frame_hash) else 0

    def gate_of(self, connection: StoringConnection) -> LedgerGate | None:
        """Return the gate of a connection. Return None before a cell is heard."""
        return self._gates.get(self._producers.get(connection, -1))

    def send_request(self, connection: StoringConnection, body: bytes) -> SentRequest:
        """Send a request of a connection to the cell. Raise FJM2Error if that is not possible."""
        gate = self.gate_of(connection)
        lane = self._bus.lanes.of_priority[REQUEST_PRIORITY]
        if gate is None:
            raise NormError("the connection has no gate to keepers")
        self._open_lane(lane)
        now_ms = time_ns() // 1_000_000
        parts = self._requests.write_body(int(Kind.BYTES), b"", body, REQUESTS, PERSISTENT, REQUEST_PRIORITY, now_ms)
        numbered, ledger, sequence, stored = gate.admit_request(parts)
        self.send_numbered(lane.number, numbered)
        return SentRequest(ledger, sequence, stored)

    def _open_lane(self, lane: "Lane") -> "OutgoingStream":
        return lane.stream or self._bus.publisher.open_lane(lane, REQUESTS)

    # Owners of ledgers

    def note_waiting(self, ledger: Ledger, through: int) -> None:
        """Note that messages were sent, and wait until they are stored."""
        self._view.note_waiting(ledger, through, self._loop.time())
        self._arm()

    def end_ledger(self, ledger: Ledger) -> None:
        """Note that a ledger gets no more messages."""
        self._view.end_ledger(ledger)

    def send_numbered(self, lane: int, numbered: Parts) -> None:
        """Send a request that has a number already. Raise NormError if that is not possible."""
        self.let_keepers_hear(lane)
        to = self._bus.lanes.all[lane]
        self._open_lane(to).append(*numbered)
        if REQUESTS.frame_hash not in to.topics:
            self._bus.publisher.add_topic(to, REQUESTS)

    def wait_for_final(self, ledger: Ledger) -> None:
        """Wait for the final set of a ledger that the cell was asked to close."""
        self._view.wait_for_final(ledger, self._loop.time())
        self._arm()

    # Input

    def hear_command(self, node_id: int, content: bytes) -> None:
        """Take a heartbeat, or a part of a table."""
        self._view.receive_command(content, node_id, self._loop.time())
        self._settle()
        if self.listener is not None:
            self.listener.hear_command(node_id, content)

    def _hear_stored(self, _: int, ack: AckReceived) -> None:
        self._view.receive_stored(ack.content, self._loop.time())
        self._settle()

    def _expire(self) -> None:
        self._armed_for = math.inf
        self._view.handle_timeout(self._loop.time())
        self._settle()

    def _end_resting(self) -> None:
        self._resting = self._loop.call_later(_REST_S, self._end_resting)
        for gate in self._gates.values():
            for ledger in gate.end_resting():
                self._view.end_ledger(ledger)
        for owner in self._owners.values():
            owner.rest()

    # Output

    def _settle(self) -> None:
        """Send and tell everything, and set the timer."""
        while (message := self._view.poll_message()) is not None:
            with contextlib.suppress(NormError):  # the lane may be closing
                self._send(message)
        while (event := self._view.poll_event()) is not None:
            self._handle(event)
        self._let_go()
        self._arm()

    def _let_go(self) -> None:
        """Let connections publish by their gates as soon as these know which topics are stored."""
        while self._held and self._view.is_known:
            connection, gate = self._held.popitem()
            connection.use_gate(gate)

    def _arm(self) -> None:
        at = self._view.poll_timeout()
        if at < self._armed_for:
            if self._timer is not None:
                self._timer.cancel()
            self._armed_for = at
            self._timer = call_not_before(self._loop, at, self._expire)

    def _send(self, message: Outgoing) -> None:
        lanes = self._bus.lanes
        if not lanes.is_open:
            return
        if isinstance(message, AskTable):
            query = TableQuery(node_id=self._bus.node_id, cell_id=message.cell_id, version=message.version)
            lanes.session.send_command(query.encode())
        elif lanes.all[message.lane].stream is not None:
            session = lanes.all[message.lane].session
            session.request_acks(STORED_TYPE, message.node_ids)
            session.repeat_flush(message.node_ids)  # a keeper that has just come does not know what is to be stored

    def _handle(self, event: Event) -> None:
        match event:
            case CellHeard():
                self._resting = self._loop.call_later(_REST_S, self._end_resting)
                for connection in self._producers:
                    self._install(connection)
            case CellReplaced():
                for gate in self._gates.values():
                    gate.end_all()
                for owner in self._owners.values():
                    owner.handle_cell(self)
            case TableLearned(version):
                self._bus.membership.announcer.table_version = version
            case KeeperLost(node_id):
                self._bus.membership.forget_keeper(node_id)
            case LedgerFinal() | Confirmed() | GaveUp() | LedgerClosed() if event.ledger.producer_id in self._owners:
                self._owners[event.ledger.producer_id].handle_event(event)
            case Confirmed() | GaveUp() | LedgerClosed():
                gate_of = self._gates.get(event.ledger.producer_id)
                if gate_of is not None:
                    self._tell(gate_of, event)

    def _tell(self, gate: LedgerGate, event: Confirmed | GaveUp | LedgerClosed) -> None:
        """Tell a gate of one of its ledgers."""
        match event:
            case Confirmed(ledger, through):
                gate.confirmed_through(ledger, through)
            case GaveUp(ledger, through, reason, timeout_s):
                # Silent keepers may have the message, or fetch it when they are back. Others lack it.
                if reason is not Reason.SILENT:
                    self._end(gate, ledger)
                gate.give_up(ledger, through, self._error(reason, timeout_s))
            case LedgerClosed(ledger):
                self._end(gate, ledger)

    def _end(self, gate: LedgerGate, ledger: Ledger) -> None:
        gate.end(ledger)
        self._view.end_ledger(ledger)

    def _install(self, connection: StoringConnection) -> None:
        producer_id = self._producers[connection]
        gate = self._gates[producer_id] = LedgerGate(producer_id, 0, self.room)
        gate.is_stored = self._view.is_stored
        gate.on_waiting = self.note_waiting
        gate.on_begun = self.let_keepers_hear
        self._view.add_writer(producer_id, connection.confirm_timeout_s, self._loop.time())
        if self.listener is not None:
            self.listener.note_gate(gate)
        owner = connection.ledger_owner
        if owner is not None:
            self._owners[owner.producer_id] = owner
            self._view.add_writer(owner.producer_id, connection.confirm_timeout_s, self._loop.time())
            if self.listener is not None:
                self.listener.note_gate(owner)
            owner.handle_cell(self)
        self._held[connection] = gate
        connection.expect_cell()
        self._let_go()

    def _error(self, reason: Reason, timeout_s: float) -> JMSError:
        """Return the error of messages that keepers did not store in time."""
        place = f"fjm2://{self._bus.config.group}:{self._bus.config.port}"
        if reason is Reason.FULL:
            return ResourceAllocationError(
                f"the stores of the keepers on {place} are full, and took no message for {timeout_s:g} s "
                "(confirm_timeout_s); it may be stored all the same, as one keeper may have had room: let consumers "
                "take messages, or give keepers more room, then send it again if a duplicate does no harm",
                "store_full",
            )
        if reason is Reason.REPLACED:
            return UnconfirmedError(
                f"other keepers have taken over {place}, and do not know of the message; send it again if a duplicate "
                "does no harm"
            )
        if reason is Reason.SILENT:
            return UnconfirmedError(
                f"too few keepers on {place} answered for {timeout_s:g} s (confirm_timeout_s); the message may be "
                "stored all the same: send it again if a duplicate does no harm"
            )
        return UnconfirmedError(
            f"keepers on {place} answer, and lack the message or one before it after {timeout_s:g} s "
            "(confirm_timeout_s); it may be stored all the same: send it again if a duplicate does no harm"
        )
