"""Tests that nothing a keeper hears raises, or takes unbounded memory, in any state."""

from dataclasses import replace
from random import Random

import cell_messages
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from single_keepers import CELL_ID, FOUNDED, ME, MEMBERS, Store, body, cell, events, heartbeat, sent

from fjm2.base.ledger import Ledger
from fjm2.cell.cell import Cell, Drop
from fjm2.cell.outgoing import State
from fjm2.cell.wire.commands import Fetch, VoteAnswer, VoteFlag
from fjm2.cell.wire.fields import Member
from fjm2.cell.wire.ranges import DECISION_LANE, Range
from fjm2.cell.wire.records import OpenRecord
from fjm2.cell.wire.requests import encode_request

messages = st.one_of(
    st.binary(max_size=200),
    cell_messages.command_strategy.map(lambda command: command.encode()),
    cell_messages.stored.map(lambda stored: stored.encode()),
    cell_messages.request_strategy.map(encode_request),
)


def follower() -> Cell:
    keeper, _ = cell()
    keeper.receive(heartbeat(1), 2, 1.0)
    assert keeper.state is State.FOLLOWER
    return keeper


def manager() -> Cell:
    """Return a member that two voted for."""
    keeper, _ = cell()
    keeper.handle_timeout(0.8)
    for flags in (VoteFlag.PRE_VOTE | VoteFlag.GRANTED, VoteFlag.GRANTED):
        answer = VoteAnswer(
            flags=flags,
            epoch=2,
            cell_id=CELL_ID,
            candidate=ME.keeper_id,
            configuration=1,
            last_epoch=0,
            last_index=1,
            voter=MEMBERS[1],
        )
        keeper.receive(answer.encode(), 2, 1.0)
        keeper.handle_synced(1, 1.0)
    keeper.receive(answer.encode(), 2, 1.0)
    assert keeper.state is State.RECOVERING
    return keeper


def empty() -> Cell:
    return Cell(Member(b"e" * 16, 1), 1, 0, Store(), Random(1), 0.0)


KEEPERS = {"empty": empty, "follower": follower, "manager": manager}


def drain(keeper: Cell) -> None:
    """Encode all that a keeper sends, as a driver does."""
    for message in sent(keeper):
        if hasattr(message, "encode"):
            message.encode()
    events(keeper)


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(KEEPERS)), st.lists(st.tuples(messages, st.integers(0, 5)), max_size=12))
def test_no_message_raises(name: str, heard: list[tuple[bytes, int]]) -> None:
    keeper = KEEPERS[name]()
    now = 1.0
    for message, source in heard:
        keeper.receive(message, source, now)
        now += 0.3
        keeper.handle_timeout(now)
        drain(keeper)


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(KEEPERS)), st.data())
def test_no_message_of_the_own_cell_raises(name: str, data: st.DataObject) -> None:
    """Foreign messages are dropped early. So these name the cell, and often a member."""
    keeper = KEEPERS[name]()
    now = 1.0
    for _ in range(data.draw(st.integers(1, 8))):
        command = data.draw(cell_messages.command_strategy | cell_messages.stored)
        changes = {"cell_id": CELL_ID}
        if hasattr(command, "keeper_id") and data.draw(st.booleans()):
            changes |= {"keeper_id": data.draw(st.sampled_from(MEMBERS)).keeper_id, "incarnation": 1}
        if hasattr(command, "promised_epoch") and data.draw(st.booleans()):
            changes["promised_epoch"] = keeper.epoch
        keeper.receive(replace(command, **changes).encode(), data.draw(st.integers(0, 5)), now)
        now += data.draw(st.sampled_from([0.0, 0.2, 1.0]))
        keeper.handle_synced(data.draw(st.integers(0, 9)), now)
        keeper.handle_timeout(now)
        drain(keeper)


@settings(max_examples=examples(60))
@given(
    st.sampled_from(sorted(KEEPERS)), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), cell_messages.entries))
)
def test_no_entry_raises(name: str, entries: list[tuple[int, int, object]]) -> None:
    keeper = KEEPERS[name]()
    for epoch, index, entry in entries:
        keeper.receive_entry(epoch, index, entry.encode(), 1.0)  # type: ignore[attr-defined]
        keeper.receive(heartbeat(max(keeper.epoch, 1), committed=index), 2, 1.0)
        keeper.handle_synced(99, 1.0)
        drain(keeper)


@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(KEEPERS)), cell_messages.ledgers, cell_messages.u64, st.lists(st.binary(max_size=3)))
def test_no_frame_raises(name: str, ledger: Ledger, first: int, frames: list[bytes]) -> None:
    keeper = KEEPERS[name]()
    keeper.receive_frames(ledger, first, frames, 7, 1.0)
    keeper.receive_frames(ledger, first, frames, 7, 1.0, is_fetched=True)
    keeper.handle_synced(99, 1.0)
    keeper.receive_stored_request(ledger.producer_id, 7)
    drain(keeper)


def test_drops_are_counted_by_reason() -> None:
    keeper = follower()
    keeper.receive(b"", 2, 1.0)
    keeper.receive(b"\xff" * 50, 2, 1.0)
    keeper.receive(heartbeat(1, cell_id=5, flags=0), 2, 1.0)
    keeper.receive(heartbeat(0), 2, 1.0)
    keeper.receive_entry(1, 2, b"damage", 1.0)
    keeper.receive_frames(Ledger(1, 0, DECISION_LANE), 1, [b"x"], 2, 1.0)
    assert keeper.dropped == {
        Drop.MALFORMED: 3,
        Drop.FOREIGN: 1,
        Drop.STALE: 1,
        Drop.CONTRADICTION: 1,
    }


def test_one_fetch_makes_a_bounded_answer() -> None:
    keeper = manager()
    sent(keeper)
    for number in range(200):
        keeper.receive_entry(0, 2 + number, body(0, OpenRecord()), 1.0)
    decisions = Range(Ledger(CELL_ID, 1, DECISION_LANE), 1, 0xFFFFFFFF)
    keeper.receive(Fetch(reply_to=9, cell_id=CELL_ID, ranges=(decisions,) * 1000).encode(), 9, 1.0)
    assert 0 < len(sent(keeper)) <= 64


def test_a_cell_that_loses_a_conflict_serves_nothing() -> None:
    keeper = manager()
    smaller = heartbeat(1, cell_id=CELL_ID + 1)  # as many members, and a higher id
    keeper.receive(smaller, 5, 1.0)
    assert keeper.state is State.RECOVERING
    keeper.receive(heartbeat(1, cell_id=CELL_ID - 1), 5, 1.0)
    assert keeper.state is State.STRANDED
    keeper.receive_entry(3, 2, body(0, OpenRecord()), 1.0)
    keeper.handle_timeout(99.0)
    assert keeper.state is State.STRANDED
    assert FOUNDED.index == 1
