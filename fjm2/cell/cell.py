"""One keeper's part in a cell, without I/O: `Cell`.

The driver passes in what it hears and which LSNs are on disk, and calls `handle_timeout` at `poll_timeout`. After each
call it polls messages and events until there are none. Times are monotonic seconds of any origin.
"""

from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from random import Random
from typing import Final

from fjm2.base.ledger import Ledger

from .change import Replacing
from .context import Context, Storage
from .decision_log import Appended
from .doubts.repairs import Repairs
from .election import Election, is_plausible
from .fetches import answer_fetch
from .founding import Founder, return_alone
from .manager import Manager
from .outgoing import CellConflict, CellJoined, Event, Outgoing, Replay, State, StateChanged
from .replica import NOBODY, Remembered, Replica
from .service.clients import Clients
from .service.section import ServiceSection
from .snapshots.snapshots import SNAPSHOT_ENTRIES
from .wire.catch_up import CatchUpQuery
from .wire.commands import (
    Counted,
    Fetch,
    Founding,
    Heartbeat,
    HeartbeatFlag,
    VoteAnswer,
    VoteFlag,
    VoteRequest,
    decode_command,
)
from .wire.fields import Member
from .wire.ranges import DECISION_LANE
from .wire.records import Record
from .wire.replacement import Replacement
from .wire.stored import STORED_VERSION, Stored, decode_stored
from .wire.table import CellQuestion, TableQuery
from .writers import Writers


class Drop(Enum):
    """Reasons for which messages are dropped."""

    MALFORMED = auto()
    FOREIGN = auto()
    """It belongs to another cell."""
    STALE = auto()
    """Its epoch is older than the promised one."""
    IMPLAUSIBLE = auto()
    """Its epoch is too far ahead."""
    CONTRADICTION = auto()
    """An entry that does not fit the log."""


class Cell:
    """A keeper's part in its cell."""

    def __init__(
        self,
        me: Member,
        node_id: int,
        bus_key: int,
        storage: Storage,
        random: Random,
        now: float,
        *,
        members_wanted: int = 3,
        remembered: Remembered | None = None,
        snapshot_entries: int = SNAPSHOT_ENTRIES,
        wall_offset_s: float = 0.0,
        replaces: bytes = b"",
    ) -> None:
        """Start a keeper. `remembered` is what its store holds, and `node_id` is the node that receives for it.

        A snapshot replaces the decision log each time that it has grown by `snapshot_entries`. `wall_offset_s` is the
        time since 1970 less `now`, for what is to happen after days. `replaces` is the beginning of the id of a member
        whose place the keeper is to take, if it is a spare.

        Raise ValueError if `members_wanted` is no size of a cell.
        """
        remembered = remembered or Remembered()
        self._context = context = Context(me, node_id, bus_key, storage, random, wall_offset_s)
        section = ServiceSection()
        self.replica: Final = Replica(context, remembered, now, sections=(section,), snapshot_entries=snapshot_entries)
        """Everything that the keeper has stored."""
        self.clients: Final = Clients(context, self.replica, section)
        """The service to clients. The driver passes in requests, messages and leases there."""
        self.dropped: Counter[Drop] = Counter()
        """Messages that were dropped, by reason."""
        self._founder = Founder(context, self.replica, members_wanted, now)
        last_index = self.replica.log.last_index
        has_heard = remembered.cell_id > 0 and not last_index
        self._founder.is_done = remembered.promised > 0 or last_index > 1 or has_heard
        if remembered.cell_id:
            context.events.append(CellJoined(remembered.cell_id))
        return_alone(context, self.replica, remembered, now)
        self._election = Election(context, self.replica, now)
        self._manager: Manager | None = None
        self._manager_node = 0
        self._newest: Heartbeat | None = None
        self._is_learner = False
        self._is_stranded = False
        self._replacing = Replacing(context, replaces)
        self._writers = Writers()
        self._repairs = Repairs(context, self.replica)
        self._told = State.EMPTY

    # State

    @property
    def epoch(self) -> int:
        """Newest epoch promised."""
        return self.replica.promise.epoch

    @property
    def cell_id(self) -> int:
        """Id of the cell that the keeper belongs to or has heard; 0 without one."""
        return self._context.cell_id

    @property
    def me(self) -> Member:
        return self._context.me

    @property
    def state(self) -> State:
        if self._is_stranded:
            return State.STRANDED
        if self._manager is not None:
            return self._manager.state
        if self._election.is_candidate:
            return State.CANDIDATE
        if self.me in self.replica.log.membership:
            return State.FOLLOWER if self._founder.is_done else State.EMPTY
        if not self.cell_id:
            return State.EMPTY
        keeper_id = self.me.keeper_id
        is_named = self._newest is not None and any(each.keeper_id == keeper_id for each in self._newest.members)
        if is_named or self.replica.log.membership.names(keeper_id):
            return State.AMNESIAC
        return State.LEARNER if self._is_learner else State.SPARE

    # Input

    def receive(self, message: bytes, source: int, now: float) -> None:
        """Take a command or a STORED from a node. Byte 0 tells them apart: 1 is the version of STORED."""
        decoded = decode_stored(message) if message[:1] == bytes((STORED_VERSION,)) else decode_command(message)
        match decoded:
            case None:
                self.dropped[Drop.MALFORMED] += 1
            case Founding():
                self._receive_founding(decoded, now)
            case Heartbeat():
                self._receive_heartbeat(decoded, source, now)
            case CellQuestion():
                if self._manager is not None:
                    self._manager.answer_question(now)
            case _ if decoded.cell_id != self.cell_id or self._is_stranded:
                self.dropped[Drop.FOREIGN] += 1
            case VoteRequest():
                self._founder.is_done = True  # only founded members vote
                self._election.receive_request(decoded, now, is_managing=self._manager is not None)
            case VoteAnswer():
                self._receive_vote(decoded, now)
            case Fetch():
                self._receive_fetch(decoded, now)
            case Counted():
                is_trusted = self._manager is not None or source == self._manager_node
                self.replica.take_counted(decoded, now, is_trusted=is_trusted)
                if self._manager is not None:
                    self._manager.receive_counted(decoded, source)
            case CatchUpQuery():
                self.clients.answer(decoded)
            case TableQuery():
                if self._manager is not None:
                    self._manager.desk.news.receive(decoded)
                    self._manager.advance(now)
            case Replacement():
                if self._manager is not None:
                    self._manager.receive_replacement(decoded, now)
            case Stored():
                self._receive_stored(decoded, source, now)
        self._settle(now)

    def receive_entry(self, epoch: int, index: int, data: bytes, now: float) -> None:
        """Take an entry of the decision log: the sequence and the body of a frame in the ledger of an epoch."""
        if not self.cell_id or self._is_stranded:
            self.dropped[Drop.FOREIGN] += 1
            return
        if epoch > self.epoch:
            self._adopt(epoch, now)
        if self._manager is None:
            result = self.replica.offer_entry(epoch, index, data, now)
            if result is Appended.GAP:
                self.replica.fetch_decisions(index - 1, now)
            elif result is Appended.REFUSED:
                self.dropped[Drop.CONTRADICTION] += 1
        self._settle(now)

    def receive_frames(
        self,
        ledger: Ledger,
        first: int,
        frames: Sequence[bytes],
        source: int,
        now: float,
        *,
        is_fetched: bool = False,
        is_urgent: bool = False,
    ) -> bool:
        """Take consecutive frames of a writer's ledger. Return False if the store has no room for some of them: no
        sender sends them again, so that the driver should offer them once more when there is room.

        `is_fetched` tells those that another keeper sent, and `is_urgent` requests, by which room is made.
        """
        if ledger.lane == DECISION_LANE or not frames:
            self.dropped[Drop.MALFORMED] += 1
            return True
        has_room = self.replica.store_frames(ledger, first, frames, now, is_fetched=is_fetched, is_urgent=is_urgent)
        if not is_fetched and ledger in self.replica.ledgers:
            self._writers.note(ledger.producer_id, source)
        self._settle(now)
        return has_room

    def receive_counted(self, ledger: Ledger, first: int, count: int, source: int, now: float) -> bool:
        """Take consecutive frames of a writer's ledger that nobody asked to keep: they are numbered all the same.
        Return False as `receive_frames` does."""
        if ledger.lane == DECISION_LANE or count < 1:
            self.dropped[Drop.MALFORMED] += 1
            return True
        has_room = self.replica.store_counted(ledger, first, count, now, is_fetched=False)
        if ledger in self.replica.ledgers:
            self._writers.note(ledger.producer_id, source)
        self._settle(now)
        return has_room

    def receive_stored_request(self, producer_id: int, source: int) -> None:
        """Answer a writer's NORM_CMD(ACK_REQ) of type 16."""
        self._answer_writer(producer_id, source)

    def handle_synced(self, lsn: int, now: float) -> None:
        """Note that all batches through an LSN are on disk, and send what waited for that."""
        synced = self.replica.handle_synced(lsn)
        for producer_id, node in self._writers.nodes(synced.producers):
            self._answer_writer(producer_id, node)
        if synced.has_promise:
            self._election.handle_synced()
        if synced.has_entries or synced.has_promise:
            if not self._founder.is_done:
                self._founder.handle_synced()
            self._answer_manager()
        if self._manager is not None:
            self._manager.handle_synced(now)
        self._settle(now)

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        if self._is_stranded:
            return
        if not self._founder.is_done:
            self._founder.handle_timeout(now)
        if self._manager is not None:
            self._manager.handle_timeout(now)
        elif self._founder.is_done:
            self._election.handle_timeout(now)
            self._election.check_pre_votes(now)
        self._settle(now)

    def handle_table_ready(self, version: int) -> None:
        """Note that all frames that a change of the table asks for are kept. Call it once for each `TableChanged`, in
        their order: several of one version come with a snapshot."""
        self.replica.readiness.reach(version)
        self.clients.answer_early()

    def propose(self, records: tuple[Record, ...], now: float) -> int | None:
        """Decide something as the serving manager. Return the index of the entry, or None if not serving.

        The decision holds once the event `Decided` tells its index with the present epoch.
        """
        if self._manager is None or self._manager.state is not State.SERVING or not self._manager.is_leased(now):
            return None
        index = self._manager.propose(records, now)
        self._settle(now)
        return index

    # Output

    def poll_message(self) -> Outgoing | None:
        """Return the next message to send."""
        return self._context.outgoing.popleft() if self._context.outgoing else None

    def poll_event(self) -> Event | None:
        """Return the next event."""
        return self._context.events.popleft() if self._context.events else None

    def poll_timeout(self) -> float:
        """Return the time at which to call `handle_timeout`."""
        if self._is_stranded:
            return float("inf")
        if self._manager is not None:
            return self._manager.next_at
        return self._election.next_at if self._founder.is_done else self._founder.next_at

    # Messages

    def _receive_founding(self, message: Founding, now: float) -> None:
        if not self._founder.is_done:
            self._founder.receive(message, now)

    def _receive_heartbeat(self, heartbeat: Heartbeat, source: int, now: float) -> None:
        if self.cell_id and heartbeat.cell_id != self.cell_id:
            self._meet(heartbeat)
            return
        if self._is_stranded:
            return
        if not self.cell_id:
            self._context.cell_id = heartbeat.cell_id
            self._context.events.append(CellJoined(heartbeat.cell_id))
        self._founder.is_done = True
        if heartbeat.epoch < self.epoch:
            self.dropped[Drop.STALE] += 1
            self.replica.send_stored(source, ())  # which tells the older manager that it is one
            return
        if heartbeat.epoch > self.epoch:
            self._adopt(heartbeat.epoch, now)
        if self._manager is not None or heartbeat.epoch != self.epoch:
            return
        self._election.hear_manager(now)
        self._newest, self._manager_node = heartbeat, source
        if self.state in (State.SPARE, State.LEARNER):
            self._replacing.hear(heartbeat)
        replica = self.replica
        replica.heartbeat = max(replica.heartbeat, heartbeat.number)
        replica.table.hear(heartbeat.table_version)
        self._follow(heartbeat.committed, heartbeat.committed_epoch, now)
        self._answer_manager()

    def _follow(self, committed: int, committed_epoch: int, now: float) -> None:
        """Commit what the manager committed, as far as the log is known to be the manager's.

        It is so if the last entry is the manager's own. Before there is one, the epoch of the entry that the manager
        committed last tells: there is one entry of an epoch at each index, and one log before it.
        """
        replica = self.replica
        if replica.log.last_epoch == self.epoch or replica.log.epoch_at(committed) == committed_epoch:
            replica.commit(committed, now)
        if replica.log.committed < committed or replica.is_stuck:
            replica.fetch_decisions(committed, now)
        replica.fetches.ask_for_frames(replica.lacking_references(), now)

    def _meet(self, heartbeat: Heartbeat) -> None:
        """Settle a conflict of two cells: the one with fewer members, then the higher id, is stranded."""
        newest = self.replica.log.membership.newest
        if not heartbeat.flags & HeartbeatFlag.SERVING or newest is None or self._is_stranded:
            self.dropped[Drop.FOREIGN] += 1
            return
        mine, other = (-len(newest.members), self.cell_id), (-len(heartbeat.members), heartbeat.cell_id)
        self._is_stranded = other < mine
        if self._is_stranded:
            self._manager = None
        self._context.events.append(CellConflict(heartbeat.cell_id, self._is_stranded))

    def _receive_vote(self, answer: VoteAnswer, now: float) -> None:
        is_refused = not answer.flags & VoteFlag.GRANTED
        if answer.epoch > self.epoch and is_refused and self.replica.log.membership.names(answer.voter.keeper_id):
            self._adopt(answer.epoch, now)
        self._election.receive_answer(answer, now)

    def _receive_stored(self, stored: Stored, source: int, now: float) -> None:
        if stored.promised_epoch > self.epoch:
            if self.replica.log.membership.names(stored.keeper_id):
                self._adopt(stored.promised_epoch, now)
        elif self._manager is not None:
            if stored.promised_epoch == self._manager.epoch:
                self._manager.receive_stored(stored, source, now)
        elif source == self._manager_node and stored.promised_epoch == self.epoch:
            self._is_learner = self.me not in self.replica.log.membership
            self.replica.fetches.ask_for_frames(self.replica.lacking(stored.progresses(), now), now)

    def _receive_fetch(self, fetch: Fetch, now: float) -> None:
        if fetch.reply_to == self._context.node_id:
            return
        is_managing = self._manager is not None
        if self._manager is not None and fetch.ranges[0].ledger.lane == DECISION_LANE:
            self._manager.replay_decisions(fetch.ranges[0], now)
        kept, counted, doubtful = answer_fetch(fetch.ranges, self.replica.ledgers, self._context.storage)
        # The manager sends frames to all, the others only to the manager. But a manager that has just started may know
        # too old a table to be believed, so all tell which frames nobody kept.
        if kept and (is_managing or fetch.reply_to == self._manager_node):
            self._context.events.append(Replay(fetch.reply_to, kept))
        if counted:
            self.replica.readiness.tell_counted(counted)
        for word, ranges in doubtful.items():
            self.replica.readiness.tell_counted(tuple(ranges), word)

    # Consequences

    def _adopt(self, epoch: int, now: float) -> None:
        """Promise a higher epoch that was heard, and follow."""
        if not is_plausible(epoch, self.epoch):
            self.dropped[Drop.IMPLAUSIBLE] += 1
        elif self.replica.store_promise(epoch, NOBODY):
            self._manager = None
            self._manager_node = 0
            self._election.withdraw(now)

    def _answer_manager(self) -> None:
        """Tell the manager of the promised epoch what is stored.

        The one before is told nothing of a promise to a candidate: it would promise the epoch, too, and give no vote.
        """
        is_promised = self._newest is not None and self._newest.epoch == self.epoch
        if self._manager is None and self._manager_node and is_promised:
            self.replica.send_stored(self._manager_node, self.replica.full_progress())

    def _answer_writer(self, producer_id: int, node: int) -> None:
        progresses = self.replica.ledgers.progress_of(producer_id)
        if progresses:
            self.replica.send_stored(node, progresses)

    def _settle(self, now: float) -> None:
        """Become the manager if elected, stop being it without a lease, and tell the driver of a new state."""
        self.replica.write_entries()
        self.clients.advance()
        self.replica.take_snapshot()
        for producer_id, node in self._writers.nodes(self._repairs.settle(now)):
            self._answer_writer(producer_id, node)
        if self._manager is None and self._election.is_elected:
            self._manager = Manager(self._context, self.replica, self.clients, self._election.epoch, now)
            self._manager_node = 0
            self._election.hear_manager(now)
            self._manager.handle_timeout(now)
        manager = self._manager
        if manager is not None and (manager.has_given_up(now) or self.replica.is_stuck):
            self._manager = None
            self._election.withdraw(now)
        elif manager is not None and manager.must_yield(now):
            self._manager = None
            self._election.yield_to_others(now)
        state = self.state
        if state is not self._told:
            self._told = state
            self._context.events.append(StateChanged(state, self.epoch))

    @property
    def is_serving(self) -> bool:
        """True for the manager that serves."""
        return self.state is State.SERVING

    def is_leased(self, now: float) -> bool:
        """Return True for a manager whom W members still let go on."""
        return self._manager is not None and self._manager.is_leased(now)
