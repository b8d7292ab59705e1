"""Cells in virtual time whose writers are clients of the cell."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial

from cells import BrokenPromiseError, Keeper, World
from subscriber_model import Model, due_ms_of
from subscribers import CLIENT_NODE, Client, message_hash

from fjm2.base.ledger import SEQUENCE_MAX, Ledger
from fjm2.base.ranges import RangeSet
from fjm2.cell.cell import Cell
from fjm2.cell.outgoing import (
    Decided,
    Event,
    Outgoing,
    Released,
    Replay,
    RequestWanted,
    SendCommand,
    SendEntry,
    SendStored,
    State,
    StateChanged,
    TableChanged,
)
from fjm2.cell.service.state_codec import encode_state
from fjm2.cell.wire.ranges import DECISION_LANE

ANSWER_S = 10.0
"""Longest time in which a client is told what became of a call, when nothing breaks any more."""


class ServiceKeeper(Keeper):
    """A keeper whose driver tells its cell what frames are."""

    def __init__(self, world: World, number: int, members_wanted: int) -> None:
        super().__init__(world, number, members_wanted)
        self.released: dict[Ledger, RangeSet] = defaultdict(RangeSet)
        self.heard: dict[tuple[Ledger, int], bytes] = {}
        """Frames that the cell was told of in this life. Some are not on disk yet."""

    def start(self) -> None:
        self.released.clear()
        self.heard.clear()
        super().start()
        if self.cell is None:
            return
        for ledger in self.disk.journal.ledgers():
            if ledger.lane != DECISION_LANE:
                for sequence, frame in self.disk.frames(ledger, 1, SEQUENCE_MAX - 1):
                    self.tell(self.cell, ledger, sequence, frame)
        self.settle()

    def tell(self, cell: Cell, ledger: Ledger, sequence: int, frame: bytes) -> None:
        """Tell the cell what a frame is."""
        self.heard[ledger, sequence] = frame
        frame_hash = message_hash(frame)
        if frame_hash is None:
            cell.clients.receive_request(ledger, sequence, frame[1:])
        else:
            self.note(cell, frame_hash, ledger, sequence, frame)

    def note(self, cell: Cell, frame_hash: int, ledger: Ledger, sequence: int, frame: bytes) -> None:
        """Tell the cell that a frame is a message."""
        if ledger.is_delayed:
            cell.clients.note_delivery_times(ledger, sequence, [due_ms_of(frame)])
        cell.clients.note_messages(frame_hash, ledger, sequence, 1)

    def keeps(self, cell: Cell, frame_hash: int) -> bool:
        """Return True for the messages of a topic that some subscription asks for, as far as this keeper knows."""
        table = cell.replica.table
        return not table.is_current or table.stores(frame_hash) or frame_hash in cell.replica.log.hashes_ahead

    def has(self, ledger: Ledger, sequence: int) -> bool:
        """Return True if a frame is on the disk, or was until it was released."""
        is_live = bool(self.disk.journal.live(ledger, sequence, sequence + 1))
        return is_live or sequence in self.released[ledger]

    def handle_event(self, cell: Cell, event: Event) -> None:
        match event:
            case TableChanged():
                if event.is_added:
                    self.reread(cell, event)
                cell.handle_table_ready(event.version)
            case RequestWanted():
                for sequence, frame in self.on_disk(event.ledger, event.sequence, event.sequence):
                    self.tell(cell, event.ledger, sequence, frame)
            case Released():
                for first, last in event.ranges:
                    self.released[event.ledger].add(first, last + 1)
                    self.disk.journal.release(event.ledger, [(first, last + 1)])
            case Replay() if event.to_node >= CLIENT_NODE:
                self.replay_to_client(event)
            case _:
                super().handle_event(cell, event)

    def reread(self, cell: Cell, event: TableChanged) -> None:
        """Tell the cell of all messages from the start of a subscription on."""
        starts = dict(event.starts)
        frame_hash = event.subscription.destination.frame_hash
        for (ledger, sequence), frame in self.heard.items():
            if sequence >= starts.get(ledger, 1) and message_hash(frame) == frame_hash:
                self.released[ledger].remove(sequence, sequence + 1)
                self.note(cell, frame_hash, ledger, sequence, frame)

    def on_disk(self, ledger: Ledger, first: int, last: int) -> list[tuple[int, bytes]]:
        """Return frames that are on disk."""
        return self.disk.frames(ledger, first, last)

    def replay_to_client(self, event: Replay) -> None:
        world = self.world
        assert isinstance(world, ServiceWorld)
        client = world.client_at(event.to_node)
        for each in event.ranges:
            for sequence, frame in self.on_disk(each.ledger, each.first, each.last):
                if client is not None and sequence not in self.released[each.ledger]:
                    hear = partial(client.hear, each.ledger, sequence, frame)
                    world.tell_client(self, client, hear)


class ServiceWorld(World):
    """A world whose writers are clients of the cell."""

    keeper_type = ServiceKeeper

    def __init__(
        self, seed: int, keepers: int = 3, client_ids: tuple[str, ...] = ("a", "b", "a", *[""] * 5), **options: float
    ) -> None:
        self.clients: list[Client] = []
        self.model = Model()
        self.deaf: set[int] = set()
        """Nodes of keepers that hear nothing of other keepers."""
        self.lives = 0
        self.client_ids = client_ids
        super().__init__(seed, keepers, 0, **options)  # type: ignore[arg-type]
        for number in range(len(client_ids)):
            self.revive(number)

    # Clients

    def revive(self, number: int) -> None:
        """Start a client anew: its new life has another node, another ledger, and the client id of the old one."""
        client = Client(self, number, self.lives, self.client_ids[number])
        self.lives += 1
        self.clients[number : number + 1] = [client]

    def client_at(self, node: int) -> Client | None:
        return next((client for client in self.clients if client.node == node and client.process.is_alive), None)

    def tell_client(self, source: Keeper | Client, client: Client, act: Callable[[], None]) -> None:
        """Deliver something to a client: perhaps never, perhaps late, perhaps twice."""
        if not (source.reachable and client.reachable) and source is not client:
            return
        for _ in range(2 if self.random.random() < self.loss / 2 else 1):
            if self.random.random() >= self.loss:
                self.later(self.delay(), lambda: client.process.call(act))

    def send(self, source: Keeper, message: Outgoing) -> None:
        match message:
            case SendCommand():
                data = message.command.encode()
                for client in self.clients:
                    self.tell_client(source, client, lambda c=client: c.receive(data, source.node))
            case SendEntry():
                epoch, index, body = message.epoch, message.index, message.data
                for client in self.clients:
                    self.tell_client(source, client, lambda c=client: c.receive_entry(epoch, index, body))
            case SendStored() if message.to_node >= CLIENT_NODE:
                stored = message.stored.encode()
                found = self.client_at(message.to_node)
                if found is not None:
                    self.tell_client(source, found, lambda c=found: c.receive(stored, source.node))
                return
        super().send(source, message)

    def deliver_frames(
        self,
        source: Keeper | Client,  # type: ignore[override]
        target: Keeper,
        ledger: Ledger,
        sequence: int,
        frame: bytes | None,
        *,
        is_fetched: bool = False,
    ) -> None:
        assert frame is not None
        frame_hash = message_hash(frame)
        node, is_urgent = source.node, frame_hash is None

        def act(cell: Cell) -> None:
            assert isinstance(target, ServiceKeeper)
            if frame_hash is not None and not is_fetched and not target.keeps(cell, frame_hash):
                self.model.counts["counted"] += 1
                cell.receive_counted(ledger, sequence, 1, node, self.now)
                return
            cell.receive_frames(ledger, sequence, (frame,), node, self.now, is_fetched=is_fetched, is_urgent=is_urgent)
            target.tell(cell, ledger, sequence, frame)

        self.deliver(source, target, act)  # type: ignore[arg-type]

    # Faults

    def decide(self) -> None:
        """Let something happen to a client."""
        number = self.random.randrange(len(self.clients))
        client = self.clients[number]
        match self.random.randrange(12):
            case 0:
                client.crash()
                delay = self.random.choice((0.1, 1.0, 5.0))
                self.later(delay, lambda: self.revive(number) if client in self.clients else None)
            case 1 | 2:
                client.reachable = False
                self.later(self.random.uniform(0.1, 8.0), lambda: self.reach(client))
            case 3 | 4 | 5:
                self.deafen()
            case 6 | 7:
                holders = [each for each in self.clients if each.consumer is not None and each.consumer.unused]
                self.model.counts["stops"] += 1
                self.random.choice(holders or self.clients).process.stop(self.random.choice((1.0, 2.5, 5.0, 7.0)))
            case _:
                pass

    def deafen(self) -> None:
        """Let a follower hear writers and not keepers for a moment: it learns late who subscribes."""
        followers = [keeper for keeper in self.keepers if keeper is not self.manager]
        if not followers:
            return
        keeper = self.random.choice(followers)
        self.deaf.add(keeper.node)
        self.later(self.random.uniform(0.1, 0.9), lambda: self.deaf.discard(keeper.node))

    def deliver(self, source: object, target: Keeper, act: Callable[[Cell], None]) -> None:  # type: ignore[override]
        if not (isinstance(source, Keeper) and target.node in self.deaf):
            super().deliver(source, target, act)  # type: ignore[arg-type]

    def heal_keepers(self) -> None:
        self.deaf.clear()
        for keeper in self.keepers:
            keeper.reachable = True
            keeper.disk.mend()
            if keeper.cell is None:
                keeper.start()

    def reach(self, client: Client) -> None:
        client.reachable = client.process.is_alive

    # Promises

    def note_confirmed(self, ledger: Ledger, through: int) -> None:
        """Check that W members have what a writer waited for."""
        for sequence in self.model.note_confirmed(ledger, through):
            holders = [
                keeper.node
                for keeper in self.keepers
                if isinstance(keeper, ServiceKeeper) and keeper.has(ledger, sequence)
            ]
            if len(holders) < len(self.keepers) // 2 + 1:
                raise BrokenPromiseError(f"message {sequence} of {ledger} is confirmed, and only {holders} have it")

    def is_kept(self, ledger: Ledger, sequence: int) -> bool:
        """Return True if W members have a message on disk, and have not released it."""
        journals = [keeper.disk.journal for keeper in self.keepers]
        holders = sum(bool(journal.live(ledger, sequence, sequence + 1)) for journal in journals)
        return holders >= len(self.keepers) // 2 + 1

    def check_event(self, keeper: Keeper, event: object) -> None:
        super().check_event(keeper, event)
        assert keeper.cell is not None
        match event:
            case StateChanged(state=State.RECOVERING):
                keeper.confirmed_before = dict(self.model.confirmed)
            case Released():
                self.model.check_released(event.ledger, event.ranges, keeper.cell.clients.state.table_version)
            case Decided(index=index) if index == self.model.index + 1:
                self.model.apply(index, event.records, self.is_kept, self.now)
            case _:
                pass

    def check_end(self) -> None:
        """Heal everything, and check that nothing is lost and that all members have the same state."""
        self.loss = 0.02
        self.heal_keepers()
        for number, client in enumerate(list(self.clients)):
            client.reachable = client.process.is_alive
            if not client.process.is_alive:
                self.revive(number)
        self.run_until(lambda: self.manager is not None)
        self.run(2.0)
        for client in self.clients:
            client.is_quiet = True
        self.run_until(lambda: all(not client.unconfirmed for client in self.clients))
        self.run_until(self.has_drained, 60.0)
        self.model.check_end()
        while self.clients:
            self.clients.pop().crash()
        self.run_until(self.is_settled)
        first, *others = (encode_state(keeper.cell.clients.state) for keeper in self.keepers if keeper.cell is not None)
        if any(other != first for other in others):
            raise BrokenPromiseError("members that applied the same decisions have different states")

    def has_drained(self) -> bool:
        """Return True if all subscriptions have what they are to get, and all clients their answers."""
        holders = [client for client in self.clients if client.consumer is not None]
        has_answers = all(at > self.now - ANSWER_S for client in self.clients for at in client.calls.values())
        return (
            {(client.client_id, client.is_durable) for client in holders}
            == {(client.client_id, client.is_durable) for client in self.clients}
            and has_answers
            and not self.model.undelivered()
        )

    def is_settled(self) -> bool:
        """Return True if all keepers have applied the whole log, and nobody has a session any more."""
        keeper = self.manager
        if keeper is None or keeper.cell is None:
            return False
        last = keeper.cell.replica.log.last_index
        return not keeper.cell.clients.state.sessions and all(
            each.cell is not None and each.cell.clients.state.index == last for each in self.keepers
        )

    def describe(self) -> str:
        clients = ", ".join(
            f"{client.node} {client.client_id}: {client.unconfirmed} unconfirmed open={client.is_open} "
            f"consumer={client.consumer and client.consumer.number} calls={list(client.calls.items())[:3]}"
            for client in self.clients
        )
        return f"{super().describe()}{clients}; undelivered {self.model.undelivered()[:3]}"
