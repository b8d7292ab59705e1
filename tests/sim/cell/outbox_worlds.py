"""Cells in virtual time whose writers have outboxes: they crash, lose power, and start again."""

from collections.abc import Callable
from random import Random
from typing import Final

from cells import BrokenPromiseError, Keeper, World
from keeper_disks import CONFIG, KeeperDisk
from service_worlds import ServiceKeeper
from subscribers import message_hash

from fjm2.base.errors import ConfigError
from fjm2.base.ledger import Ledger
from fjm2.cell.cell import Cell
from fjm2.cell.client.cell_view import CellView
from fjm2.cell.client.outgoing import (
    AskStored,
    CellHeard,
    CellReplaced,
    Confirmed,
    GaveUp,
    LedgerClosed,
    LedgerFinal,
    Reason,
)
from fjm2.cell.outgoing import Outgoing, SendCommand, SendStored
from fjm2.cell.wire.requests import End, encode_request
from fjm2.outbox.outbox import Outbox, Turn
from fjm2.outbox.outbox_lane import LaneState
from fjm2.outbox.outbox_store import OutboxStore, recover_lane
from fjm2.store.opening import open_journal

OUTBOX_NODE: Final = 5000
LANES: Final = (0, 1)
TIMEOUT_S: Final = 2.0
"""Time after which a writer gives its keepers up. It is short, so that a life of seconds sees it often."""
WINDOW: Final = 12
"""Most frames of a lane that are not confirmed."""
REMEMBER_S: Final = 1.0
"""Interval at which an outbox writes how far its lanes are stored."""


class OutboxDisk(KeeperDisk):
    """The disk of an outbox."""

    def open_outbox(self) -> "Outbox[int]":
        self.journal = open_journal(self.disk, CONFIG, self._random, keeper_id=self._keeper_id)
        self._write = None
        store = OutboxStore(self.journal, self.journal.append)
        return Outbox(store, {lane: recover_lane(self.journal, self.disk, lane) for lane in LANES})

    def messages(self, lane: int, first: int, last: int) -> list[tuple[int, bytes]]:
        ledger = Ledger(int.from_bytes(self._keeper_id[:8], "big"), 0, lane)
        return self.frames(ledger, first, last)


class OutboxWriter:
    """A program with an outbox, in all its lives."""

    def __init__(self, world: "OutboxWorld", number: int) -> None:
        self.world = world
        self.number = number
        self.disk = OutboxDisk(bytes((100 + number,)) * 16, Random(world.random.getrandbits(32)))
        self.producer_id = int.from_bytes(bytes((100 + number,)) * 8, "big")
        self.lives = 0
        self.node = OUTBOX_NODE
        self.reachable = True
        self.outbox: Outbox[int] | None = None
        self.made = 0
        self.accepted: dict[int, dict[int, bytes]] = {lane: {} for lane in LANES}
        """Messages of each lane whose sends completed, by number."""
        self.frames: dict[tuple[Ledger, int], bytes] = {}
        """Everything that was ever sent, by its place."""
        self.requests: set[tuple[Ledger, int]] = set()
        self.start()

    # Lives

    def start(self) -> None:
        world = self.world
        try:
            self.outbox = self.disk.open_outbox()
        except ConfigError:
            if not self.disk.is_bad:
                raise
            self.outbox = None
            return
        self.lives += 1
        self.node = OUTBOX_NODE + 100 * self.lives + self.number
        for lane, state in self.outbox.lanes.items():
            for number, frame in self.disk.messages(lane, state.released + 1, state.durable):
                if self.accepted[lane].setdefault(number, frame) != frame:
                    raise BrokenPromiseError(f"message {number} of lane {lane} is another one after a restart")
            if any(number > state.durable for number in self.accepted[lane]):
                raise BrokenPromiseError(f"an outbox lost what it accepted in lane {lane}: {state.durable}")
        self.view = CellView(Random(world.random.getrandbits(32)))
        self.view.add_writer(self.producer_id, TIMEOUT_S, world.now)
        self.flying: dict[Ledger, int] = {}
        """Last sequence that was sent of each ledger."""
        self.confirmed: dict[Ledger, int] = {}
        life = self.outbox
        world.later(world.random.uniform(0.0, 0.05), lambda: self.turn(life))
        world.later(REMEMBER_S, lambda: self.remember(life))

    def crash(self, end: Callable[[OutboxDisk], None]) -> None:
        self.outbox = None
        end(self.disk)

    # The program

    def turn(self, life: "Outbox[int]") -> None:
        outbox, world = self.outbox, self.world
        if outbox is not life:
            return
        if world.is_writing and outbox.waiting < 40:
            turn = Turn(0, world.now)
            for _ in range(world.random.randrange(4)):
                self.made += 1
                outbox.accept(turn, world.random.choice(LANES), b"M0%d of %d" % (self.made, self.number))
            if turn.count:
                outbox.add(turn)
        if world.random.random() < 0.05:
            for lane in outbox.lanes.values():
                lane.rest()
        if self.disk.journal.is_full:
            self.disk.journal.retry()
        outbox.handle_timeout(world.now)
        self.view.handle_timeout(world.now)
        self.settle()
        for ledger, last in self.flying.items():
            for sequence in range(self.confirmed.get(ledger, 0) + 1, last + 1):
                if world.random.random() < 0.2:
                    self.publish(ledger, sequence)
        world.later(world.random.uniform(0.02, 0.06), lambda: self.turn(life))

    def remember(self, life: "Outbox[int]") -> None:
        outbox, world = self.outbox, self.world
        if outbox is life:
            outbox.remember()
            self.settle()
            world.later(REMEMBER_S, lambda: self.remember(life))

    def settle(self) -> None:
        """Do everything that follows from what came."""
        outbox, world = self.outbox, self.world
        if outbox is None:
            return
        while (event := self.view.poll_event()) is not None:
            self.handle(outbox, event)
        while (message := self.view.poll_message()) is not None:
            if isinstance(message, AskStored):
                for keeper in world.keepers:
                    world.deliver(
                        self,  # type: ignore[arg-type]
                        keeper,
                        lambda cell: cell.receive_stored_request(self.producer_id, self.node),
                    )
        while (ask := outbox.poll_ask()) is not None:
            body = encode_request(End(0, ask.ended.producer_epoch))
            self.requests.add((ask.ledger, 1))
            self.send(ask.ledger, 1, b"R" + body)
            self.view.wait_for_final(ask.ended, world.now)
        for lane in outbox.lanes.values():
            while (place := lane.next_place()) is not None:
                if place[1] - self.confirmed.get(lane.ledger, 0) > WINDOW:
                    break
                frame = outbox.held(lane.lane, place[0])
                if frame is None:
                    ((_, frame),) = self.disk.messages(lane.lane, place[0], place[0])
                lane.note_sent(1)
                self.send(lane.ledger, place[1], frame)
        outbox.flush()
        self.work()

    def work(self) -> None:
        """Let the disk do the next piece of work."""
        outbox, world = self.outbox, self.world
        if self.disk.begin():
            delay = world.random.uniform(0.0005, 0.003) if world.random.random() < 0.9 else world.random.uniform(0, 0.3)
            world.later(delay, lambda: self.complete(outbox))

    def complete(self, life: "Outbox[int] | None") -> None:
        outbox, journal = self.outbox, self.disk.journal
        if outbox is None or outbox is not life:
            return
        before = {lane: each.durable for lane, each in outbox.lanes.items()}
        assert self.disk.complete(), "an outbox's disk fails"
        refused, journal.refused[:] = list(journal.refused), []
        outbox.handle_synced(journal.lsn, refused, self.world.now)
        for lane, state in outbox.lanes.items():
            for number, frame in self.disk.messages(lane, before[lane] + 1, state.durable):
                if self.accepted[lane].setdefault(number, frame) != frame:
                    raise BrokenPromiseError(f"message {number} of lane {lane} was accepted twice")
        self.settle()

    def handle(self, outbox: "Outbox[int]", event: object) -> None:
        match event:
            case CellHeard() | CellReplaced():
                outbox.handle_cell()
            case Confirmed(ledger, through):
                self.confirmed[ledger] = through
                outbox.handle_stored(ledger, through)
            case GaveUp(ledger, _, Reason.SILENT):
                self.view.note_waiting(ledger, self.flying[ledger], self.world.now)
            case GaveUp(ledger) | LedgerClosed(ledger):
                outbox.handle_lost(ledger)
                self.view.end_ledger(ledger)
            case LedgerFinal(ledger, through):
                self.check_final(ledger, through)
                outbox.handle_final(ledger, through, self.world.now)
            case _:
                pass

    def check_final(self, ledger: Ledger, through: int) -> None:
        final = self.world.closed.get(ledger)
        if final is not None and final != (((1, through),) if through else ()):
            raise BrokenPromiseError(f"a writer learned that {ledger} ends with {through}, and it is {final}")

    # The network

    def send(self, ledger: Ledger, sequence: int, frame: bytes) -> None:
        if self.frames.setdefault((ledger, sequence), frame) != frame:
            raise BrokenPromiseError(f"two frames are {sequence} of {ledger}")
        self.flying[ledger] = sequence
        self.view.note_waiting(ledger, sequence, self.world.now)
        self.publish(ledger, sequence)

    def publish(self, ledger: Ledger, sequence: int) -> None:
        frame = self.frames[ledger, sequence]
        for keeper in self.world.keepers:
            self.world.deliver_frames(self, keeper, ledger, sequence, frame)  # type: ignore[arg-type]

    def receive(self, message: bytes, source: int) -> None:
        if self.outbox is not None:
            if message[:1] == b"\1":
                self.view.receive_stored(message, self.world.now)
            else:
                self.view.receive_command(message, source, self.world.now)
            self.settle()

    # Promises

    def stored(self, lane: int) -> list[bytes]:
        """Return the messages of a lane that the cell has, in the order of its ledgers."""
        found: list[bytes] = []
        manager = self.world.manager
        assert manager is not None
        assert manager.cell is not None
        ledgers = sorted({ledger for ledger, _ in self.frames if ledger.lane == lane})
        for ledger in ledgers:
            final = self.world.closed.get(ledger)
            through = manager.cell.replica.ledgers.progress(ledger).on_disk
            if final is not None:
                through = final[0][1] if final else 0
            found += [
                self.frames[ledger, sequence]
                for sequence in range(1, through + 1)
                if (ledger, sequence) not in self.requests
            ]
        return found

    def check_end(self) -> None:
        for lane in LANES:
            expected = [frame for _, frame in sorted(self.accepted[lane].items())]
            stored = self.stored(lane)
            if stored != expected:
                lost = [frame for frame in expected if frame not in set(stored)]
                raise BrokenPromiseError(
                    f"lane {lane} has {len(stored)} of {len(expected)} messages, lost {lost[:3]}, "
                    f"{len(stored) - len(set(stored))} doubled"
                )


class OutboxKeeper(ServiceKeeper):
    """A keeper that wants all messages."""


class OutboxWorld(World):
    """A world whose writers have outboxes."""

    keeper_type = OutboxKeeper

    def __init__(self, seed: int, keepers: int = 3, outboxes: int = 2, **options: float) -> None:
        self.outboxes: list[OutboxWriter] = []
        super().__init__(seed, keepers, 0, **options)  # type: ignore[arg-type]
        self.outboxes = [OutboxWriter(self, number) for number in range(outboxes)]
        self.endings: set[LaneState] = set()

    def send(self, source: Keeper, message: Outgoing) -> None:
        match message:
            case SendCommand():
                data = message.command.encode()
                for writer in self.outboxes:
                    self.tell_outbox(source, writer, data)
            case SendStored() if message.to_node >= OUTBOX_NODE:
                for writer in self.outboxes:
                    if writer.node == message.to_node:
                        self.tell_outbox(source, writer, message.stored.encode())
                return
        super().send(source, message)

    def tell_outbox(self, source: Keeper, writer: OutboxWriter, data: bytes) -> None:
        if source.reachable and writer.reachable and self.random.random() >= self.loss:
            node, life = source.node, writer.outbox
            self.later(self.delay(), lambda: writer.receive(data, node) if writer.outbox is life else None)

    def deliver_frames(
        self,
        source: object,
        target: Keeper,
        ledger: Ledger,
        sequence: int,
        frame: bytes | None,
        *,
        is_fetched: bool = False,
    ) -> None:
        assert frame is not None
        assert isinstance(source, Keeper | OutboxWriter)
        node, is_urgent = source.node, message_hash(frame) is None

        def act(cell: Cell) -> None:
            cell.receive_frames(ledger, sequence, (frame,), node, self.now, is_fetched=is_fetched, is_urgent=is_urgent)
            assert isinstance(target, ServiceKeeper)
            target.tell(cell, ledger, sequence, frame)

        self.deliver(source, target, act)  # type: ignore[arg-type]

    def decide(self) -> None:
        """Let something happen to a writer."""
        writer = self.random.choice(self.outboxes)
        if writer.outbox is None:
            writer.disk.mend()
            writer.start()
            return
        match self.random.randrange(24):
            case 0 | 1:
                writer.crash(OutboxDisk.kill)
            case 2 | 3:
                writer.crash(OutboxDisk.cut_power)
            case 4 | 5:
                writer.reachable = False
                self.later(self.random.uniform(0.1, 6.0), lambda: setattr(writer, "reachable", True))
            case 6:
                writer.disk.fill()
                self.later(self.random.uniform(0.1, 3.0), writer.disk.mend)
            case _:
                pass

    def check_end(self) -> None:
        """Heal everything, and check that each message that was accepted is stored once, in order."""
        self.loss = 0.02
        for keeper in self.keepers:
            keeper.reachable = True
            keeper.disk.mend()
            if keeper.cell is None:
                keeper.start()
        for writer in self.outboxes:
            writer.reachable = True
            writer.disk.mend()
            if writer.outbox is None:
                writer.start()
        self.run_until(lambda: self.manager is not None)
        self.run(2.0)
        self.is_writing = False
        self.run_until(self.has_drained, 60.0)
        self.run_until(lambda: self.manager is not None)
        self.run(3.0)  # a manager may fetch what the others have
        for writer in self.outboxes:
            writer.check_end()

    def has_drained(self) -> bool:
        return all(writer.outbox is not None and not writer.outbox.waiting for writer in self.outboxes)

    def describe(self) -> str:
        lanes = ", ".join(
            f"{writer.number}/{lane.lane}: {lane.state.name} {lane.ledger.producer_epoch} "
            f"{lane.released}/{lane.sent}/{lane.durable}"
            for writer in self.outboxes
            if writer.outbox is not None
            for lane in writer.outbox.lanes.values()
        )
        return f"{super().describe()}; {lanes}"
