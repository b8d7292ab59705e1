"""Signals of a cell's member beside the streams of a bus: commands, STOREDs, and the decisions it writes."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from random import SystemRandom

from fjm2.base.errors import FJM2Error
from fjm2.base.logs import Log
from fjm2.bus.bus import Bus
from fjm2.bus.ledgers.destinations import DECISIONS
from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import Outgoing, SendCommand, SendEntry, SendStored
from fjm2.cell.wire.kinds import Kind
from fjm2.cell.wire.leases import LEASES_TYPE
from fjm2.cell.wire.stored import STORED_TYPE
from fjm2.messages.destination import TopicPattern
from fjm2.messages.frame import FrameWriter
from fjm2.norm.events import AckReceived, AckRequested

from .counts import KeeperCounts
from .decisions import PRIORITY, entry_frame
from .long_stored import PART_TYPE, StoredJoiner, StoredSplitter
from .node_producers import NodeProducers
from .status import STATUS_TYPE
from .status_teller import StatusTeller

log = Log("fjm2.keeper")


class CellSignals:
    """Passes signals of the bus to a cell, and sends what the cell wants sent."""

    def __init__(self, bus: Bus, cell: Cell, counts: KeeperCounts, clock: Callable[[], float]) -> None:
        self.on_hearing: Callable[[], None] = lambda: None
        """Called before the cell gets something: a heartbeat must not overtake the decisions that it tells of."""
        self.on_heard: Callable[[], None] = lambda: None
        """Called when the cell has got something."""
        self.status: Callable[[], bytes] = bytes
        """Returns the command that tells the keeper's status."""
        self._teller: StatusTeller | None = None
        self._bus, self._cell, self._counts, self._clock = bus, cell, counts, clock
        self._splitter = StoredSplitter(bus.config.sender.segment_bytes)
        self._joiner = StoredJoiner()
        self._producers = NodeProducers()
        self._connection_id = SystemRandom().getrandbits(64)
        self._name = ""
        """Name under which the keeper is seen on the bus; empty before it has joined."""
        self._entries = FrameWriter(self._connection_id)

    def join(self, name: str) -> None:
        """Hear the bus, and be seen there under a name."""
        signals = self._bus.lanes.signals
        for kind in Kind:
            signals.hear_commands(kind, self._hear_question if kind is Kind.CELL_QUESTION else self._hear)
        signals.hear_acks(STORED_TYPE, self._hear_stored)
        signals.hear_acks(PART_TYPE, self._hear_part)
        signals.hear_acks(LEASES_TYPE, self._hear_leases)
        signals.hear_requests(STORED_TYPE, self._hear_request)
        teller = self._teller = StatusTeller(lambda: self.send_command(self.status()))
        signals.hear_requests(STATUS_TYPE, lambda _: teller.tell())
        self._name = name
        self.announce()

    def announce(self) -> None:
        """Announce the keeper, and whether it has a cell: publishers wait for that."""
        if self._name:
            # Flow control waits for a keeper as for a subscriber to everything, so that what it lacks can be repaired.
            everything = frozenset((TopicPattern(">").frame_hash,))
            has_cell = self._cell.cell_id > 0
            self._bus.announce(self._connection_id, self._name, everything, is_keeper=True, has_cell=has_cell)

    def stop_hearing(self) -> None:
        """Hear nothing more, and tell no status. The cell may still send."""
        if self._teller is not None:
            self._teller.close()
        signals = self._bus.lanes.signals
        for kind in Kind:
            signals.hear_commands(kind, None)
        for ack_type in (STORED_TYPE, PART_TYPE, LEASES_TYPE):
            signals.hear_acks(ack_type, None)
        for ack_type in (STORED_TYPE, STATUS_TYPE):
            signals.hear_requests(ack_type, None)

    def leave(self) -> None:
        """Say goodbye."""
        self._bus.withdraw(self._connection_id)

    # Hearing.

    def note_writer(self, node_id: int, producer_id: int) -> None:
        """Note whose frames a node sends. Requests for STORED do not say so."""
        self._producers.note(node_id, producer_id)

    def _hear(self, node_id: int, content: bytes) -> None:
        self.on_hearing()
        self._cell.receive(content, node_id, self._clock())
        self.on_heard()

    def _hear_question(self, node_id: int, content: bytes) -> None:
        self._bus.membership.announcer.answer()
        self._hear(node_id, content)

    def _hear_stored(self, _: int, event: AckReceived) -> None:
        self._hear(event.node_id, event.content)

    def _hear_part(self, _: int, event: AckReceived) -> None:
        whole = self._joiner.receive(event.node_id, event.content)
        if whole is not None:
            self._hear(event.node_id, whole)

    def _hear_leases(self, _: int, event: AckReceived) -> None:
        self._cell.clients.receive_leases(event.content, self._clock())

    def _hear_request(self, event: AckRequested) -> None:
        producers = self._producers.of(event.sender_id)
        for producer_id in producers:
            self._cell.receive_stored_request(producer_id, event.sender_id)
        if producers:
            self.on_heard()

    # Sending.

    def send(self, message: Outgoing) -> None:
        """Send something of the cell."""
        match message:
            case SendCommand(command):
                self.send_command(command.encode())
            case SendStored(node_id, stored):
                for ack_type, content in self._splitter.acks(stored):
                    with self._refusals():
                        is_sent = self._bus.lanes.session.send_ack(node_id, ack_type, content)
                        self._counts.signals_refused += not is_sent
            case SendEntry(epoch, index, data):
                with self._refusals():
                    self._send_entry(epoch, index, data)

    def send_command(self, content: bytes) -> None:
        """Send a command to all."""
        with self._refusals():
            self._bus.lanes.session.send_command(content)

    def _send_entry(self, epoch: int, index: int, data: bytes) -> None:
        lane = self._bus.lanes.of_priority[PRIORITY]
        stream = lane.stream or self._bus.publisher.open_lane(lane, DECISIONS)
        stream.append(*entry_frame(self._entries, self._cell.cell_id, epoch, index, data))

    @contextlib.contextmanager
    def _refusals(self) -> Iterator[None]:
        """Count what cannot be sent. Everything that the cell sends is sent again, or asked for."""
        try:
            yield
        except FJM2Error as error:
            self._counts.signals_refused += 1
            log.seldom(logging.WARNING, "not_sent", str(error))
