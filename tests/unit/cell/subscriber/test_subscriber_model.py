"""A model of a durable consumer: however its messages come, it gets each one once, and those of a writer in order."""

from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from serving_cells import Alone
from subscribed_cells import WRITERS, Connection

from fjm2.cell.service.reasons import Reason
from fjm2.cell.subscriber.outgoing import AcknowledgementDecided

writers = st.integers(0, 1)
places = st.integers(0, 1000)


class ConsumerMachine(RuleBasedStateMachine):
    """Two writers, a keeper that has everything, and a network that delays, repeats and loses messages."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = Connection(Alone())
        self.session = self.connection.open()
        self.consumer = self.connection.subscribe(self.session)
        self.room = 1000
        self.seen = 0
        self.waiting: list[tuple[int, int]] = []
        self.acked: set[tuple[int, int]] = set()
        self.first: dict[int, int] = {}

    @rule(kinds=st.lists(st.booleans(), min_size=1, max_size=30), writer=writers)
    def publish(self, kinds: list[bool], writer: int) -> None:
        ledger, first, count = self.connection.publish(*kinds, writer=writer)
        self.connection.packets.append(lambda: self.connection.hear(ledger, first, count))

    @precondition(lambda self: self.connection.packets)
    @rule(place=places, is_again=st.booleans())
    def come(self, place: int, is_again: bool) -> None:
        packets = self.connection.packets
        place %= len(packets)
        act = packets[place] if is_again else packets.pop(place)
        act()
        self.connection.flush()

    @precondition(lambda self: self.connection.packets)
    @rule(place=places)
    def lose(self, place: int) -> None:
        del self.connection.packets[place % len(self.connection.packets)]

    @rule(count=st.integers(1, 40))
    def come_in_order(self, count: int) -> None:
        for _ in range(min(count, len(self.connection.packets))):
            self.connection.packets.pop(0)()
            self.connection.flush()

    @rule(seconds=st.sampled_from([0.05, 0.4, 3.0]))
    def wait(self, seconds: float) -> None:
        self.connection.run(seconds)

    @rule(messages=st.sampled_from([0, 1, 7, 1000]))
    def set_room(self, messages: int) -> None:
        self.check()
        self.room = messages
        self.connection.room(self.consumer, messages)

    @precondition(lambda self: self.waiting)
    @rule(place=places, count=st.integers(1, 20))
    def acknowledge(self, place: int, count: int) -> None:
        place %= len(self.waiting)
        chosen = self.waiting[place : place + count]
        del self.waiting[place : place + count]
        ranges = [(WRITERS[writer], sequence, sequence) for writer, sequence in chosen]
        self.connection.subscriber.acknowledge(self.consumer, ranges, self.connection.alone.now)
        self.connection.flush()
        self.acked.update(chosen)

    @invariant()
    def check(self) -> None:
        connection = self.connection
        fresh, self.seen = connection.delivered[self.seen :], len(connection.delivered)
        self.room -= len(fresh)
        assert self.room >= 0
        for ledger, sequence, frame, _ in fresh:
            assert frame == connection.published[ledger][sequence - 1]
            self.waiting.append((WRITERS.index(ledger), sequence))
        for writer in range(2):
            got = connection.got(writer)
            assert got == connection.orders(writer)[: len(got)]
        for event in connection.told_of(AcknowledgementDecided):
            assert getattr(event, "reason", None) is Reason.GRANTED

    def teardown(self) -> None:
        connection = self.connection
        connection.room(self.consumer, 100_000)
        connection.run_all(12.0)
        for writer in range(2):
            assert connection.got(writer) == connection.orders(writer)
        assert connection.subscriber.held_bytes == 0
        cursor = connection.alone.cell.clients.state.cursor_of(
            self.session, connection.subscriber.number_of(self.consumer)
        )
        assert cursor is not None
        for writer in range(2):
            for sequence in connection.got(writer):
                is_acked = any(cursor.acked_within(WRITERS[writer], sequence, sequence + 1))
                assert is_acked == ((writer, sequence) in self.acked)


TestConsumer = ConsumerMachine.TestCase
TestConsumer.settings = settings(max_examples=examples(40), stateful_step_count=40, deadline=None)
