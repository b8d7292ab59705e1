"""A model of a publisher's view: whatever keepers, strangers and time do, it believes no more than it may."""

from collections import Counter
from typing import Any

from effort import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from talking_cells import CELL, LEDGER, MANAGER, OTHER_CELL, TIMEOUT_S, Publisher, heartbeat, part, stored

from fjm2.base.ledger import Ledger
from fjm2.cell.client.cell_choice import LOST_S
from fjm2.cell.client.outgoing import (
    CellHeard,
    CellReplaced,
    Confirmed,
    Event,
    GaveUp,
    LedgerClosed,
    Reason,
    TableLearned,
)

SIZE, MAJORITY = 3, 2
lanes = st.integers(0, 1)
keepers = st.integers(0, SIZE - 1)
garbage = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda content, place, byte: content[:place] + bytes((byte,)) + content[place + 1 :],
        st.sampled_from([heartbeat().encode(), part(2, 5).encode()]),
        st.integers(1, 60),
        st.integers(0, 255),
    ),
)


class ViewMachine(RuleBasedStateMachine):
    """One real cell, whose table grows, a smaller forged one, and a producer with two lanes."""

    def __init__(self) -> None:
        super().__init__()
        self.publisher = Publisher()
        self.number = 0
        self.version = 0
        self.heard = self.learned = 0
        """Newest version that a heartbeat of the cell named, and the one that is known."""
        self.heard_at = -LOST_S
        self.is_heard = False
        self.epochs = [0, 0]
        self.sent: dict[Ledger, int] = {}
        self.since: dict[Ledger, list[tuple[int, float]]] = {}
        """Messages of each ledger that wait, with the time of their sending."""
        self.on_disk: dict[tuple[int, int, Ledger], int] = {}
        """Counts by table version, member and ledger."""
        self.confirmed: dict[Ledger, int] = {}

    # The cell.

    @rule(is_lost=st.booleans(), epoch=st.sampled_from([0, 0, 1]))
    def beat(self, is_lost: bool, epoch: int) -> None:
        self.number += 1 + (epoch << 20)
        if is_lost:
            return
        was_heard = self.is_heard
        self.is_heard, self.heard_at = True, self.publisher.now
        self.heard = self.version
        number, term = self.number % (1 << 20), 1 + self.number // (1 << 20)
        events = self.publisher.hear(heartbeat(SIZE, epoch=term, number=number or 1, table_version=self.version))
        assert (CellHeard(CELL) in events) is not was_heard
        self.note(events)

    @rule()
    def change_table(self) -> None:
        self.version += 1

    @rule(ahead=st.integers(-1, 1), source=st.sampled_from([MANAGER, MANAGER + 1]))
    def tell_table(self, ahead: int, source: int) -> None:
        version = max(self.version + ahead, 0)
        if version <= self.version:
            self.note(self.publisher.hear(part(version, version), source))

    @rule(keeper=keepers, lane=lanes, share=st.floats(0.0, 1.5), table=st.integers(-1, 0), is_closed=st.booleans())
    def answer(self, keeper: int, lane: int, share: float, table: int, is_closed: bool) -> None:
        ledger = self.ledger(lane)
        through = int(self.sent.get(ledger, 0) * share)
        version = max(self.version + table, 0)
        if self.is_heard and ledger in self.sent:
            key = version, keeper, ledger
            self.on_disk[key] = max(through, self.on_disk.get(key, 0))
        changes: dict[str, Any] = {"table_version": version, "is_closed": is_closed and share < 0.1}
        self.note(self.publisher.take(stored(keeper, through, ledger=ledger, **changes)))

    # Strangers.

    @rule(content=garbage)
    def hear_garbage(self, content: bytes) -> None:
        before = self.publisher.view.cell_id
        self.publisher.view.receive_command(content, MANAGER + 7, self.publisher.now)
        self.publisher.view.receive_stored(content, self.publisher.now)
        self.note(self.publisher.events())
        assert self.publisher.view.cell_id == before

    @rule(lane=lanes, keeper=keepers)
    def answer_for_another_life(self, lane: int, keeper: int) -> None:
        ledger = self.ledger(lane)
        through = self.sent.get(ledger, 0)
        for changes in ({"incarnation": 2}, {"configuration": 258}, {"cell_id": OTHER_CELL}):
            self.note(
                self.publisher.take(stored(keeper, through, ledger=ledger, table_version=self.version, **changes))
            )

    @precondition(lambda self: self.is_heard and self.publisher.now - self.heard_at < LOST_S)
    @rule(number=st.integers(1, 9))
    def hear_smaller_cell(self, number: int) -> None:
        message = heartbeat(1, cell_id=OTHER_CELL, number=number, epoch=9, table_version=99)
        assert self.publisher.hear(message) == []

    # The producer.

    @rule(lane=lanes, count=st.integers(1, 5))
    def send(self, lane: int, count: int) -> None:
        ledger = self.ledger(lane)
        self.sent[ledger] = self.sent.get(ledger, 0) + count
        self.since.setdefault(ledger, []).append((self.sent[ledger], self.publisher.now))
        self.publisher.send(self.sent[ledger], ledger)

    @rule(seconds=st.sampled_from([0.01, 0.2, 3.0]))
    def wait(self, seconds: float) -> None:
        told, _ = self.publisher.run(seconds)
        self.note(told)

    def ledger(self, lane: int) -> Ledger:
        return Ledger(LEDGER.producer_id, self.epochs[lane], lane)

    # The promises.

    def note(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case Confirmed(ledger, through):
                    self.check_confirmed(ledger, through)
                case GaveUp(ledger, through, reason):
                    waiting = self.since[ledger]
                    given_up = [each for each in waiting if each[0] <= through]
                    assert given_up
                    assert all(at + TIMEOUT_S <= self.publisher.now + 1e-6 for _, at in given_up)
                    self.since[ledger] = waiting[len(given_up) :]
                    if reason is not Reason.SILENT:
                        self.end(ledger)
                case LedgerClosed(ledger):
                    self.end(ledger)
                case TableLearned(version):
                    assert version == self.heard > self.learned
                    self.learned = version
                case CellReplaced():
                    raise AssertionError("the cell was never gone")
                case _:
                    pass

    def check_confirmed(self, ledger: Ledger, through: int) -> None:
        assert self.confirmed.get(ledger, 0) < through <= self.sent[ledger]
        # W members have it, all with one table, which is no older than the newest one that was heard of.
        holders = Counter(
            version
            for (version, _, named), on_disk in self.on_disk.items()
            if named == ledger and on_disk >= through and version >= self.heard
        )
        assert max(holders.values(), default=0) >= MAJORITY
        self.confirmed[ledger] = through
        self.since[ledger] = [each for each in self.since[ledger] if each[0] > through]

    def end(self, ledger: Ledger) -> None:
        """Go on in the next ledger of the lane, as a gate does."""
        if ledger.producer_epoch == self.epochs[ledger.lane]:
            self.epochs[ledger.lane] += 1
        self.publisher.view.end_ledger(ledger)

    @invariant()
    def what_the_newest_table_does_not_tell_counts_as_stored(self) -> None:
        view = self.publisher.view
        assert view.table_version == self.learned
        assert view.is_known is (self.is_heard and self.learned == self.heard)
        assert view.is_stored(self.learned or 1000) is (self.learned != self.heard or self.learned > 0)
        assert view.is_stored(1001) is (self.learned != self.heard)

    @invariant()
    def nothing_waits_beyond_the_time_limit(self) -> None:
        for waiting in self.since.values():
            assert all(self.publisher.now <= at + TIMEOUT_S + 1e-6 for _, at in waiting)

    @invariant()
    def time_goes_on(self) -> None:
        assert self.publisher.view.poll_timeout() > self.publisher.now - 1e-6


TestCellView = ViewMachine.TestCase
TestCellView.settings = settings(max_examples=examples(60), stateful_step_count=60)
