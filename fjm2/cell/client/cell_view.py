"""The cell of a bus as its publishers see it, without I/O: `CellView`.

The owner passes in what it hears and what its producers send, and calls `handle_timeout` at `poll_timeout`. After each
call it polls messages and events until there are none. Times are monotonic seconds of any origin.
"""

from collections import Counter, deque
from random import Random

from fjm2.base.ledger import Ledger

from ..wire.commands import Heartbeat, MemberFlag, decode_command
from ..wire.stored import Stored, decode_stored
from ..wire.table import TableHashes
from .cell_choice import CellChoice, Drop, Heard
from .closings import Closings
from .outgoing import (
    AskStored,
    AskTable,
    CellHeard,
    CellReplaced,
    Event,
    KeeperLost,
    LedgerClosed,
    Outgoing,
    TableLearned,
)
from .stored_table import StoredTable
from .writer import Writer


class CellView:
    """Hears a cell for the producers of a bus, and tells them how far their ledgers are stored."""

    def __init__(self, random: Random) -> None:
        self.dropped: Counter[Drop] = Counter()
        """Messages that were dropped, by reason."""
        self._random = random
        self._choice = CellChoice()
        self._table = StoredTable(random)
        self._writers: dict[int, Writer] = {}
        self._closings = Closings()
        self._messages: deque[Outgoing] = deque()
        self._events: deque[Event] = deque()

    # State

    @property
    def is_heard(self) -> bool:
        """True once a cell was heard. It stays true."""
        return self._choice.heartbeat is not None

    @property
    def heartbeat(self) -> Heartbeat | None:
        """Newest heartbeat that was believed; None if none was heard."""
        return self._choice.heartbeat

    @property
    def is_known(self) -> bool:
        """True if a cell was heard, and its newest table is known."""
        return self.is_heard and self._table.version == self._table.newest

    @property
    def cell_id(self) -> int:
        """Id of the cell; 0 if none was heard."""
        return 0 if self._choice.heartbeat is None else self._choice.heartbeat.cell_id

    @property
    def table_version(self) -> int:
        """Version of the newest table that is known."""
        return self._table.version

    def is_stored(self, frame_hash: int) -> bool:
        """Return True if keepers store what is sent to a topic, by its hash, or if that is not known yet. Any thread
        may ask."""
        return self._table.is_stored(frame_hash)

    @property
    def keepers(self) -> tuple[int, ...]:
        """Nodes of the members that the manager hears."""
        heartbeat = self._choice.heartbeat
        members = () if heartbeat is None else heartbeat.members
        return tuple(member.node_id for member in members if member.flags & MemberFlag.LIVE and member.node_id)

    # Producers

    def add_writer(self, producer_id: int, confirm_timeout_s: float, now: float) -> None:
        """Tell about the ledgers of a producer from now on. Its messages fail after a time-out."""
        writer = self._writers[producer_id] = Writer(producer_id, confirm_timeout_s)
        if self._choice.heartbeat is not None:
            writer.receive_heartbeat(self._choice.heartbeat, now)

    def remove_writer(self, producer_id: int) -> None:
        """Forget a producer. Doing this twice does no harm."""
        self._writers.pop(producer_id, None)
        self._closings.forget(producer_id)

    def note_waiting(self, ledger: Ledger, through: int, now: float) -> None:
        """Note that messages of a producer were sent, and wait through a sequence."""
        writer = self._writers.get(ledger.producer_id)
        if writer is not None:
            writer.note_waiting(ledger, through, now)

    def end_ledger(self, ledger: Ledger) -> None:
        """Note that a ledger gets no more messages."""
        writer = self._writers.get(ledger.producer_id)
        if writer is not None:
            writer.end(ledger)

    def wait_for_final(self, ledger: Ledger, now: float) -> None:
        """Wait for the final set of a ledger. `LedgerFinal` tells it once the cell has closed the ledger."""
        self._closings.wait_for(ledger, now)

    # Input

    def receive_command(self, content: bytes, source: int, now: float) -> None:
        """Take a NORM_CMD(APPLICATION) from a node: a heartbeat, or a part of a table."""
        message = decode_command(content)
        match message:
            case Heartbeat():
                self._receive_heartbeat(message, source, now)
            case TableHashes():
                self._receive_hashes(message, source)
            case None:
                self.dropped[Drop.MALFORMED] += 1
            case _:
                pass  # keepers speak to each other

    def receive_stored(self, content: bytes, now: float) -> None:
        """Take a NORM_ACK of type 16."""
        stored = decode_stored(content)
        if stored is None:
            self.dropped[Drop.MALFORMED] += 1
        elif stored.cell_id != self.cell_id or not self._is_member(stored.keeper_id):
            self.dropped[Drop.FOREIGN] += 1
        else:
            self._take_stored(stored, now)

    def handle_timeout(self, now: float) -> None:
        """Give up what has waited for too long, and ask for what is missing."""
        heartbeat = self._choice.heartbeat
        lanes: set[int] = set()
        for writer in self._writers.values():
            self._events += writer.given_up(now)
            lanes.update(writer.lanes_to_ask(now))
        lanes.update(self._closings.lanes_to_ask(now))
        keepers = self.keepers
        if keepers:
            self._messages += [AskStored(lane, keepers) for lane in sorted(lanes)]
        if heartbeat is not None and self._table.poll_request(now):
            self._messages.append(AskTable(heartbeat.cell_id, self._table.newest))

    # Output

    def poll_message(self) -> Outgoing | None:
        """Return the next message to send."""
        return self._messages.popleft() if self._messages else None

    def poll_event(self) -> Event | None:
        """Return the next event."""
        return self._events.popleft() if self._events else None

    def poll_timeout(self) -> float:
        """Return the time at which to call `handle_timeout`."""
        times = [writer.poll_timeout() for writer in self._writers.values()]
        return min([*times, self._table.poll_timeout(), self._closings.poll_timeout()])

    # Messages

    def _receive_heartbeat(self, heartbeat: Heartbeat, source: int, now: float) -> None:
        before = self._choice.heartbeat
        heard = self._choice.hear(heartbeat, source, now)
        if isinstance(heard, Drop):
            self.dropped[heard] += 1
            return
        if heard is Heard.FIRST:
            self._events.append(CellHeard(heartbeat.cell_id))
        elif heard is Heard.OTHER:
            self._replace(heartbeat)
        elif before is not None:
            self._note_lost(before)
        self._closings.receive_heartbeat(heartbeat)
        for writer in self._writers.values():
            writer.receive_heartbeat(heartbeat, now)
            self._events += writer.confirmed()
        if self._table.want(heartbeat.table_version, now):
            self._events.append(TableLearned(self._table.version))

    def _replace(self, heartbeat: Heartbeat) -> None:
        """Begin anew with another cell."""
        for writer in self._writers.values():
            self._events += writer.begin_anew()
        self._closings = Closings()
        self._table = StoredTable(self._random)
        self._events += (CellReplaced(heartbeat.cell_id), TableLearned(0))

    def _note_lost(self, before: Heartbeat) -> None:
        """Tell of nodes that were live members before, and are not any more."""
        live = set(self.keepers)
        for member in before.members:
            if member.flags & MemberFlag.LIVE and member.node_id and member.node_id not in live:
                self._events.append(KeeperLost(member.node_id))

    def _receive_hashes(self, part: TableHashes, source: int) -> None:
        if part.cell_id != self.cell_id or source != self._choice.manager_node:
            self.dropped[Drop.FOREIGN] += 1
            return
        is_complete = self._table.receive(part)
        if is_complete is None:
            self.dropped[Drop.UNASKED] += 1
        elif is_complete:
            self._events.append(TableLearned(self._table.version))

    def _is_member(self, keeper_id: bytes) -> bool:
        heartbeat = self._choice.heartbeat
        return heartbeat is not None and any(member.keeper_id == keeper_id for member in heartbeat.members)

    def _take_stored(self, stored: Stored, now: float) -> None:
        named = set(stored.ledgers["producer_id"].tolist())
        # An answer that names no ledger of ours still tells that its keeper is there.
        writers = [self._writers[each] for each in named if each in self._writers] or list(self._writers.values())
        for writer in writers:
            writer.receive_stored(stored, now)
            self._events += writer.confirmed()
        if stored.ledgers["closed"].any():
            for progress in stored.progresses():
                writer_of = self._writers.get(progress.ledger.producer_id)
                if progress.is_closed and writer_of is not None and writer_of.is_open(progress.ledger):
                    writer_of.end(progress.ledger)
                    self._events.append(LedgerClosed(progress.ledger))
            self._events += self._closings.receive_stored(stored)
