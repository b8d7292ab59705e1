"""Cells in virtual time: keepers with disks, writers, and a network that loses, delays and doubles messages.

A kill keeps what the kernel was given, a power cut what was synced and any part of the rest, and a lost disk nothing
but the keeper's id. The world checks what a cell promises at every step.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Final

from cell_writers import WRITER_NODE, Writer, frame_of
from keeper_disks import KeeperDisk

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.cell import Cell
from fjm2.cell.decision_log import spans_of
from fjm2.cell.outgoing import (
    CellJoined,
    Decided,
    Event,
    Outgoing,
    Replay,
    SendCommand,
    SendEntry,
    SendStored,
    State,
    StateChanged,
    TableChanged,
)
from fjm2.cell.stored_tracker import Standing
from fjm2.cell.wire.ranges import Range, Spans
from fjm2.cell.wire.records import (
    CloseRecord,
    ConfigureRecord,
    FenceRecord,
    Hand,
    HandRecord,
    SectionRecord,
    Subscription,
    TableRecord,
    TimeRecord,
    decode_entry,
)
from fjm2.cell.wire.requests import Place
from fjm2.keeper.storage import member_of
from fjm2.store.opening import DamagedStoreError

BUS_KEY: Final = 1 << 127
NEVER: Final = float("inf")
SNAPSHOT_ENTRIES: Final = 5
"""Entries after which a snapshot is taken: lives of seconds see many."""
RETRY_S: Final = 1.0
"""Time after which a full disk is asked for room again."""


class BrokenPromiseError(AssertionError):
    """Something that a cell promises did not hold."""


class Keeper:
    """A keeper process, which may be down."""

    def __init__(self, world: "World", number: int, members_wanted: int) -> None:
        self.world = world
        self.node = number
        self.keeper_id = bytes((number,)) * 16
        self.disk = KeeperDisk(self.keeper_id, Random(world.random.getrandbits(32)))
        self.cell: Cell | None = None
        self.members_wanted = members_wanted
        self.replaces = b""
        """Beginning of the id of a member whose place it is to take."""
        self.confirmed_before: dict[Ledger, int] = {}
        self._timer_at = NEVER
        self.reachable = True

    def start(self) -> None:
        world = self.world
        try:
            remembered = self.disk.open()
        except DamagedStoreError:
            raise
        except ConfigError:
            assert self.disk.is_bad, "a store cannot be opened"
            return
        try:
            self.cell = Cell(
                member_of(self.disk.journal),
                self.node,
                BUS_KEY,
                self.disk.storage,
                Random(world.random.getrandbits(32)),
                world.now,
                members_wanted=self.members_wanted,
                remembered=remembered,
                snapshot_entries=world.snapshot_entries,
                replaces=self.replaces,
            )
        except ConfigError as error:
            raise BrokenPromiseError(f"a keeper does not know what it stored: {error}") from None
        self.world.later(RETRY_S, self._retry, self)
        self.settle()

    def stop(self) -> None:
        self.cell = None
        self._timer_at = NEVER

    def call(self, act: Callable[[Cell], object]) -> None:
        """Do something with the cell, unless the process is down."""
        if self.cell is not None:
            act(self.cell)
            self.settle()

    def settle(self) -> None:
        """Send and tell everything, start a sync if something waits for it, and set the timer."""
        cell, world = self.cell, self.world
        assert cell is not None
        while (event := cell.poll_event()) is not None:
            world.check_event(self, event)
            self.handle_event(cell, event)
        while (message := cell.poll_message()) is not None:
            world.send(self, message)
        world.check(self)
        self._work()
        self._set_timer()

    def _set_timer(self) -> None:
        """Have `handle_timeout` called in time. A timer that expires too early is set anew."""
        assert self.cell is not None
        world = self.world
        at = max(self.cell.poll_timeout(), world.now + 1e-4)
        if at < self._timer_at:
            self._timer_at = at
            world.at(at, lambda: self._expire(at), self)

    def _work(self) -> None:
        """Have the disk do the next piece of work, if it has nothing to do."""
        world = self.world
        if self.disk.begin():
            # A disk answers in a millisecond, and now and then takes its time.
            is_slow = world.random.random() < world.slow_syncs
            delay = world.random.uniform(0.0, 0.3) if is_slow else world.random.uniform(0.0005, 0.003)
            world.later(delay, self._complete, self)

    def handle_event(self, cell: Cell, event: Event) -> None:
        """Do what an event asks of the driver."""
        match event:
            case TableChanged():
                cell.handle_table_ready(event.version)
            case Replay():
                self.replay(event)
            case CellJoined():
                self.disk.journal.set_cell(event.cell_id)
            case _:
                pass

    def _complete(self) -> None:
        before = self.disk.journal.lsn
        if not self.disk.complete():
            self.stop()
            self.disk.kill()
        elif self.disk.journal.lsn > before:
            self.call(lambda cell: cell.handle_synced(self.disk.journal.lsn, self.world.now))
        else:
            self._work()

    def _retry(self) -> None:
        """Ask a full disk for room again."""
        if self.disk.journal.is_full:
            self.disk.journal.retry()
            self._work()
        self.world.later(RETRY_S, self._retry, self)

    def _expire(self, at: float) -> None:
        if at == self._timer_at and self.cell is not None:
            self._timer_at = NEVER
            if self.cell.poll_timeout() <= self.world.now:
                self.call(lambda cell: cell.handle_timeout(self.world.now))
            else:
                self._set_timer()

    def replay(self, event: Replay) -> None:
        """Send frames that are on disk."""
        for each in event.ranges:
            for sequence, frame in self.disk.frames(each.ledger, each.first, each.last):
                target = self.world.keeper_at(event.to_node)
                if target is not None:
                    self.world.deliver_frames(self, target, each.ledger, sequence, frame, is_fetched=True)


class World:
    """Keepers, writers, a network and a clock."""

    keeper_type: type[Keeper] = Keeper
    frame_bytes = 0
    """Least length of a writer's frame."""
    snapshot_entries = SNAPSHOT_ENTRIES

    def __init__(
        self,
        seed: int,
        keepers: int = 3,
        writers: int = 2,
        *,
        members: int | None = None,
        loss: float = 0.05,
        slow_syncs: float = 0.03,
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.loss = loss
        """Share of messages that are lost."""
        self.slow_syncs = slow_syncs
        """Share of syncs that take up to 0.3 s."""
        self.is_writing = True
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.keepers = [self.keeper_type(self, number, members or keepers) for number in range(1, keepers + 1)]
        self.writers = [Writer(self, number) for number in range(writers)]
        self.managers: dict[int, bytes] = {}
        """Manager of each epoch."""
        self.decided: dict[int, tuple[int, bytes]] = {}
        """Epoch and body of each entry that a keeper said is committed."""
        self.closed: dict[Ledger, Spans] = {}
        """Final sets of closed ledgers."""
        self.table_version = 0
        self.proposed: set[int] = set()
        self.states: dict[State, int] = defaultdict(int)
        for keeper in self.keepers:
            keeper.start()
        for writer in self.writers:
            writer.turn()

    # Time

    def at(self, when: float, act: Callable[[], None], of: Keeper | None = None) -> None:
        """Do something at a time, unless the process has ended then."""
        if when == NEVER:
            return
        life = of.cell if of is not None else None
        guarded = act if of is None else lambda: act() if of.cell is life else None
        heapq.heappush(self._queue, (when, next(self._order), guarded))

    def later(self, delay: float, act: Callable[[], None], of: Keeper | None = None) -> None:
        self.at(self.now + delay, act, of)

    def run(self, seconds: float) -> None:
        """Let time go by."""
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, _, act = heapq.heappop(self._queue)
            act()
        self.now = end

    def run_until(self, condition: Callable[[], bool], seconds_max: float = 30.0) -> float:
        """Run until a condition holds. Return the time that it took, or raise BrokenPromiseError."""
        began = self.now
        while not condition():
            if self.now - began > seconds_max:
                raise BrokenPromiseError(f"no progress in {seconds_max} s: {self.describe()}")
            self.run(0.05)
        return self.now - began

    # Network

    def deliver(self, source: Keeper | Writer, target: Keeper, act: Callable[[Cell], None]) -> None:
        """Deliver a call: perhaps never, perhaps late, perhaps twice."""
        if not (source.reachable and target.reachable) and source is not target:
            return
        for _ in range(2 if self.random.random() < self.loss / 2 else 1):
            if self.random.random() < self.loss:
                continue
            self.later(self.delay(), lambda: target.call(act))

    def delay(self) -> float:
        return self.random.uniform(0.0001, 0.002) if self.random.random() < 0.97 else self.random.uniform(0.0, 0.4)

    def send(self, source: Keeper, message: Outgoing) -> None:
        match message:
            case SendCommand():
                data = message.command.encode()
                for keeper in self.keepers:
                    if keeper is not source:
                        self.deliver(source, keeper, lambda cell: cell.receive(data, source.node, self.now))
                for writer in self.writers:
                    self._tell(source, writer, data)
            case SendEntry():
                epoch, index, body = message.epoch, message.index, message.data
                for keeper in self.keepers:
                    if keeper is not source:
                        self.deliver(source, keeper, lambda cell: cell.receive_entry(epoch, index, body, self.now))
            case SendStored():
                data = message.stored.encode()
                target = self.keeper_at(message.to_node)
                if target is not None:
                    self.deliver(source, target, lambda cell: cell.receive(data, source.node, self.now))
                elif message.to_node >= WRITER_NODE:
                    self._tell(source, self.writers[message.to_node - WRITER_NODE], data)

    def _tell(self, source: Keeper, writer: Writer, data: bytes) -> None:
        if source.reachable and self.random.random() >= self.loss:
            self.later(self.delay(), lambda: writer.receive(data))

    def deliver_frames(
        self,
        source: Keeper | Writer,
        target: Keeper,
        ledger: Ledger,
        sequence: int,
        frame: bytes | None,
        *,
        is_fetched: bool = False,
    ) -> None:
        """Deliver a frame, or the news that there is one that nobody asked to keep."""
        node = source.node

        def receive(cell: Cell) -> None:
            if frame is None:
                cell.receive_counted(ledger, sequence, 1, node, self.now)
            else:
                cell.receive_frames(ledger, sequence, (frame,), node, self.now, is_fetched=is_fetched)

        self.deliver(source, target, receive)

    def keeper_at(self, node: int) -> Keeper | None:
        return next((keeper for keeper in self.keepers if keeper.node == node), None)

    # Faults

    def kill(self, keeper: Keeper) -> None:
        """End the process. What it wrote stays."""
        keeper.stop()
        keeper.disk.kill()

    def cut_power(self, *keepers: Keeper) -> None:
        for keeper in keepers:
            keeper.stop()
            keeper.disk.cut_power()

    def lose_disk(self, keeper: Keeper) -> None:
        """Lose everything but the keeper's id."""
        keeper.stop()
        keeper.disk.lose()

    # Promises

    def check_event(self, keeper: Keeper, event: object) -> None:
        cell = keeper.cell
        assert cell is not None
        match event:
            case StateChanged(state=state, epoch=epoch):
                self.states[state] += 1
                if state is State.RECOVERING:
                    other = self.managers.setdefault(epoch, keeper.keeper_id)
                    if other != keeper.keeper_id:
                        raise BrokenPromiseError(f"two managers of epoch {epoch}")
                    keeper.confirmed_before = {
                        ledger: writer.tracker.confirmed(ledger)
                        for writer in self.writers
                        for ledger in (*writer.past, writer.ledger)
                    }
                elif state in (State.CLAIMING, State.SERVING):
                    for ledger, through in keeper.confirmed_before.items():
                        if not cell.replica.ledgers.is_on_disk(ledger, 1, through + 1):
                            raise BrokenPromiseError(f"confirmed through {through} of {ledger}, lost at a takeover")
                    self._check_references(cell)
            case Decided(index=index):
                entry = cell.replica.log.entry(index)
                known = self.decided.setdefault(index, (entry.epoch, entry.data))
                if known != (entry.epoch, entry.data):
                    raise BrokenPromiseError(f"entry {index} was decided twice, in epochs {known[0]} and {entry.epoch}")
                for record in entry.body.records:
                    if isinstance(record, CloseRecord):
                        self.closed.setdefault(record.ledger, record.final)
                        self.check_closed()
            case _:
                pass

    def _check_references(self, cell: Cell) -> None:
        """Check that a manager holds what committed decisions refer to."""
        log = cell.replica.log
        for index in range(log.first_index, log.committed + 1):
            for record in log.entry(index).body.records:
                if not all(cell.replica.ledgers.is_on_disk(*span) for span in spans_of(record)):
                    raise BrokenPromiseError(f"entry {index} is decided, and the manager lacks what it refers to")

    def check(self, keeper: Keeper) -> None:
        """Check what holds at any time."""
        assert keeper.cell is not None
        if not self.serves(keeper.cell):
            return
        serving = [each for each in self.keepers if each.cell is not None and self.serves(each.cell)]
        if len(serving) > 1:
            raise BrokenPromiseError(f"{len(serving)} managers serve at a time")
        version = keeper.cell.replica.table.version
        if version < self.table_version:
            raise BrokenPromiseError(f"the table went back from {self.table_version} to {version}")
        self.table_version = version

    def check_closed(self) -> None:
        """Check that final sets include all that was confirmed and kept, even if that came after the closing."""
        for writer in self.writers:
            for ledger in writer.past:
                final = self.closed.get(ledger)
                if final is not None:
                    confirmed = writer.tracker.confirmed(ledger)
                    outside = RangeSet((first, last + 1) for first, last in final).gaps(1, confirmed + 1)
                    if any(frame_of(sequence) for gap in outside for sequence in range(*gap)):
                        raise BrokenPromiseError(f"confirmed through {confirmed}, and the final set is {final}")

    def serves(self, cell: Cell) -> bool:
        return cell.is_leased(self.now) and cell.is_serving

    @property
    def manager(self) -> Keeper | None:
        """The keeper that serves."""
        return next((each for each in self.keepers if each.cell is not None and self.serves(each.cell)), None)

    def decide(self) -> None:
        """Let the manager decide something: a subscription, the time, or that messages are handed out."""
        keeper = self.manager
        if keeper is None or keeper.cell is None:
            return
        cell, random = keeper.cell, self.random
        place = Place(0, f"topic{random.randrange(3)}")
        subscription = Subscription(1, place, "client", f"name{random.randrange(3)}", "")
        version = cell.replica.table.version
        writer = random.choice(self.writers)
        # A manager hands out only what W members have.
        held = min(writer.confirmed, cell.replica.ledgers.progress(writer.ledger).on_disk)
        if random.random() < 0.4 and version not in self.proposed:
            self.proposed.add(version)
            keeper.call(lambda cell: cell.propose((TableRecord(version + 1, True, subscription, ()),), self.now))
        elif random.random() < 0.2:
            fence = FenceRecord(writer.begin_anew())
            keeper.call(lambda cell: cell.propose((fence,), self.now))
        elif held and random.random() < 0.5:
            hand = HandRecord((Hand(Range(writer.ledger, held, 1), 1),))
            keeper.call(lambda cell: cell.propose((hand,), self.now))
        else:
            keeper.call(lambda cell: cell.propose((TimeRecord(int(self.now * 1000)),), self.now))

    def check_end(self) -> None:
        """Heal everything, and check that the cell serves, that nothing is lost and that all agree."""
        self.loss = 0.02
        for keeper in self.keepers:
            keeper.reachable = True
            keeper.disk.mend()
            if keeper.cell is None:
                keeper.start()
        self.run_until(lambda: self.manager is not None)
        self.run(2.0)
        self.is_writing = False
        self.run_until(lambda: all(writer.confirmed == writer.sent for writer in self.writers))
        self.run_until(lambda: self.manager is not None)
        self.run_until(self._manager_has_all)
        last = self.manager
        assert last is not None
        assert last.cell is not None
        for writer in self.writers:
            assert writer.tracker.standing(self.now) is Standing.ABLE
        self._check_frames()
        self._check_states()
        log = last.cell.replica.log
        for index, (epoch, data) in self.decided.items():
            if index < log.first_index:
                continue
            entry = log.entry(index)
            if (entry.epoch, entry.data) != (epoch, data):
                raise BrokenPromiseError(f"entry {index} was decided, and the manager has another one")

    def _check_states(self) -> None:
        """Check that members that applied the same decisions, or a snapshot of them, have the same state."""
        states: dict[int, tuple[SectionRecord, ...]] = {}
        for keeper in self.keepers:
            if keeper.cell is not None:
                index, state = keeper.cell.replica.decided_state
                if keeper.cell.clients.state.index != index:
                    continue  # no snapshot is taken of it
                if states.setdefault(index, state) != state:
                    raise BrokenPromiseError(f"two states after decision {index}: {self.describe()}")

    def _check_frames(self) -> None:
        """Check that W disks hold what is confirmed, unchanged."""
        for writer in self.writers:
            expected = {
                (sequence, frame)
                for sequence in range(1, writer.confirmed + 1)
                if (frame := frame_of(sequence, self.frame_bytes))
            }
            holders = sum(
                expected <= set(keeper.disk.frames(writer.ledger, 1, writer.confirmed))
                for keeper in self.keepers
                if keeper.cell is not None
            )
            if holders < self.keepers[0].members_wanted // 2 + 1:
                raise BrokenPromiseError(f"{holders} disks hold what is confirmed of {writer.ledger}")

    def _manager_has_all(self) -> bool:
        keeper = self.manager
        if keeper is None or keeper.cell is None:
            return False
        ledgers = keeper.cell.replica.ledgers
        return all(ledgers.is_on_disk(writer.ledger, 1, writer.confirmed + 1) for writer in self.writers)

    def describe(self) -> str:
        """Return the state of all keepers, for the message of a failing test."""
        return (
            ", ".join(
                f"{keeper.node}: down"
                if keeper.cell is None
                else f"{keeper.node}: {keeper.cell.state.name} epoch {keeper.cell.epoch}"
                f" log {keeper.cell.replica.log.committed}/{keeper.cell.replica.log.last_index}"
                for keeper in self.keepers
            )
            + "; "
            + ", ".join(f"{writer.confirmed}/{writer.sent}" for writer in self.writers)
        )


def wander(world: World, seconds: float, *, disks_lost: int = 0) -> None:
    """Break things at random for a while. A disk is lost only while the cell has recovered from the loss before."""
    random = world.random
    end = world.now + seconds
    while world.now < end:
        world.run(random.expovariate(3.0))
        for _ in range(random.randrange(3)):
            world.decide()
        up = [keeper for keeper in world.keepers if keeper.cell is not None]
        down = [keeper for keeper in world.keepers if keeper.cell is None]
        match random.randrange(16):
            case 0 if up:
                world.kill(random.choice(up))
            case 1 if up:
                world.cut_power(random.choice(up))
            case 2:
                world.cut_power(*up)
            case 3 if up:
                random.choice(up).reachable = False
            case 4 if world.manager is not None:
                world.manager.reachable = False
                world.run(random.uniform(1.0, 4.0))
            case 5 if disks_lost and has_recovered(world):
                disks_lost -= 1
                victim = random.choice(world.keepers)
                world.lose_disk(victim)
                if random.random() < 0.7:
                    victim.start()
            case 6 if disks_lost and has_recovered(world):
                disks_lost -= 1
                random.choice(world.keepers).disk.fail_next_sync()
            case 7:
                random.choice(world.keepers).disk.fill()
            case 8:
                for keeper in world.keepers:
                    keeper.disk.mend()
            case 9 | 10 | 11:
                for keeper in world.keepers:
                    keeper.reachable = True
            case _ if down:
                random.choice(down).start()
            case _:
                pass


def has_recovered(world: World) -> bool:
    """Return True if the newest decided configuration is complete and names all keepers as they are."""
    newest = None
    for _, data in (world.decided[index] for index in sorted(world.decided)):
        body = decode_entry(data)
        assert body is not None
        for record in body.records:
            if isinstance(record, ConfigureRecord):
                newest = record
    present = {None if keeper.disk.is_failing else keeper.disk.member for keeper in world.keepers}
    return newest is not None and newest.is_complete and set(newest.members) == present
