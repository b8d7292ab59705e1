"""Tests of the gate that numbers messages for keepers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fjm2.base.ledger import Ledger
from fjm2.bus.ledgers.destinations import REQUESTS
from fjm2.bus.ledgers.ledger_gate import LedgerGate
from fjm2.bus.ledgers.ledger_room import LedgerRoom
from fjm2.jms import BytesMessage, JMSError, Queue, ResourceAllocationError, Topic, UnconfirmedError
from fjm2.messages.batches.array_writer import join_frames
from fjm2.messages.batches.frame_array import FrameArray
from fjm2.messages.destination import Destination
from fjm2.messages.files.parts import cancel_parts, data_parts, encode_begin
from fjm2.messages.frame import FrameWriter, Parts
from fjm2.messages.header import FILE, HEADER, IN_PARTS, PERSISTENT, RETAINED_SEND
from fjm2.messages.last_values.retained import retained_parts, retained_section
from fjm2.messages.ledgers.ledger_number import LedgerNumber, is_intact, ledger_number_of

STORED, OTHER, QUEUE = Topic("stored"), Topic("other"), Queue("q")
PRODUCER, EPOCH = 0xABCDEF, 3
WRITER = FrameWriter(1)
ERROR = UnconfirmedError("nobody answers")


def frame(destination: Destination = STORED, flags: int = PERSISTENT, priority: int = 4, size: int = 10) -> Parts:
    message = BytesMessage()
    message.write_bytes(bytes(size))
    return WRITER.write(message, destination, flags, priority, 0)


def number_of(parts: Parts) -> LedgerNumber | None:
    data = b"".join(parts)
    header = HEADER.unpack_from(data)
    number = ledger_number_of(data, header)
    assert number is None or is_intact(data, header)
    return number


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


def open_gate(stream_bytes: int = 1 << 20, room: LedgerRoom | None = None, producer_id: int = PRODUCER) -> LedgerGate:
    gate = LedgerGate(producer_id, EPOCH, room or LedgerRoom(stream_bytes))
    gate.is_stored = {STORED.frame_hash, QUEUE.frame_hash}.__contains__
    return gate


def file_frames(destination: Destination, flags: int = PERSISTENT) -> tuple[Parts, Parts, Parts]:
    """Return the first frame of a file, one with data, and one that cancels it."""
    first = WRITER.write_body(FILE, b"", encode_begin(9, "a.bin"), destination, flags | IN_PARTS, 4, 0)
    return first, data_parts(first[0], 0, b"part"), cancel_parts(first[0], "why")


def admitted(
    gate: LedgerGate, destination: Destination = STORED, **how: int
) -> tuple[int | None, "asyncio.Future[None] | None"]:
    """Return the sequence and the future of a frame."""
    found = gate.admit(destination, frame(destination, **how))
    assert found is not None
    number = number_of(found[0])
    assert number is None or number[:2] == (PRODUCER, EPOCH)
    return None if number is None else number.sequence, found[1]


@in_loop
async def test_each_lane_is_a_ledger() -> None:
    gate = open_gate()
    sequences = [admitted(gate, priority=priority)[0] for priority in range(10)]
    assert sequences == [1, 2, 3, 4, 5, 1, 2, 1, 2, 3]
    assert [gate.newest(lane).sequence for lane in range(3)] == [5, 2, 3]


@in_loop
async def test_what_needs_storing_is_numbered_and_the_rest_is_not() -> None:
    gate = open_gate()
    assert admitted(gate, OTHER) == (1, None)
    assert admitted(gate, OTHER, flags=0) == (None, None)
    assert admitted(gate, STORED, flags=0) == (None, None)
    assert admitted(gate, QUEUE, flags=0) == (2, None)
    sequence, future = admitted(gate, QUEUE)
    assert sequence == 3
    assert future is not None
    assert [gate.holds(one, PERSISTENT) for one in (STORED, OTHER, QUEUE)] == [True, False, True]
    assert not gate.holds(STORED, 0)
    unchanged = frame(OTHER, flags=0)
    assert gate.admit(OTHER, unchanged) == (unchanged, None)


@in_loop
async def test_of_a_file_that_is_not_stored_the_first_frame_is_numbered() -> None:
    gate = open_gate()
    first, *others = file_frames(OTHER)
    found = gate.admit(OTHER, first)
    assert found is not None
    assert (number_of(found[0]), found[1]) == (LedgerNumber(PRODUCER, EPOCH, 1), None)
    gate.is_stored = lambda _: True  # since a moment ago
    assert [gate.admit(OTHER, part) for part in others] == [(part, None) for part in others]
    assert gate.newest(0).sequence == 1


@in_loop
async def test_a_file_that_would_have_to_be_stored_is_refused() -> None:
    gate = open_gate()
    for destination in (STORED, QUEUE):
        with pytest.raises(ResourceAllocationError, match="keepers do not keep files") as caught:
            gate.admit(destination, file_frames(destination)[0])
        assert str(destination) in str(caught.value)
        assert caught.value.error_code == "files_not_kept"
    passed = file_frames(STORED, flags=0)
    assert [gate.admit(STORED, part) for part in passed] == [(part, None) for part in passed]
    assert (gate.newest(0).sequence, gate.unconfirmed) == (0, 0)


@in_loop
async def test_without_a_cell_nothing_is_numbered() -> None:
    gate = open_gate()
    gate.is_stored = None
    for destination in (STORED, QUEUE):
        assert admitted(gate, destination) == (None, None)
        assert not gate.holds(destination, PERSISTENT)
    (array,) = join_frames([frame(), frame()])
    assert gate.admit_many(STORED, array) == (array, None)


@in_loop
async def test_messages_of_a_turn_share_a_future_and_complete_in_order() -> None:
    gate = open_gate()
    first = [admitted(gate)[1] for _ in range(3)]
    other_lane = admitted(gate, priority=9)[1]
    await asyncio.sleep(0)
    second = admitted(gate)[1]
    assert first[0] is first[1] is first[2]
    assert len({first[0], second, other_lane}) == 3
    done: list[str] = []
    for name, future in (("second", second), ("first", first[0])):
        assert future is not None
        future.add_done_callback(lambda _, name=name: done.append(name))
    assert gate.unconfirmed == 5
    ledger = Ledger(PRODUCER, EPOCH, 0)
    assert gate.confirmed_through(ledger, 2)
    await asyncio.sleep(0)
    assert not done
    assert gate.confirmed_through(ledger, 4)
    await asyncio.sleep(0)
    assert done == ["first", "second"]
    assert gate.confirmed_through(ledger, 1)
    assert gate.unconfirmed == 1
    assert other_lane is not None
    assert not other_lane.done()


@in_loop
async def test_a_run_that_is_confirmed_in_its_turn_takes_no_more() -> None:
    gate = open_gate()
    _, first = admitted(gate)
    assert gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), 1)
    _, second = admitted(gate)
    assert first is not None
    assert first.done()
    assert second is not None
    assert not second.done()
    assert gate.unconfirmed == 1


@in_loop
async def test_forged_confirmations_do_nothing() -> None:
    gate = open_gate()
    _, future = admitted(gate)
    for ledger, sequence in (
        (Ledger(PRODUCER + 1, EPOCH, 0), 1),
        (Ledger(PRODUCER, EPOCH + 1, 0), 1),
        (Ledger(PRODUCER, EPOCH, 3), 1),
        (Ledger(PRODUCER, EPOCH, 255), 1),
        (Ledger(PRODUCER, EPOCH, 0), 2),
        (Ledger(PRODUCER, EPOCH, 0), (1 << 64) - 1),
    ):
        assert not gate.confirmed_through(ledger, sequence)
    assert gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), 0)
    assert future is not None
    assert not future.done()


@in_loop
async def test_unconfirmed_bytes_are_bounded() -> None:
    gate = open_gate(stream_bytes=4000)
    calls: list[int] = []
    gate.on_room = lambda: calls.append(1)
    count = sum(gate.admit(STORED, frame(size=100)) is not None for _ in range(100))
    size = len(b"".join(frame(size=100))) + 29
    assert count == 2000 // size
    assert gate.newest(0).sequence == count, "a frame that is not admitted gets no number"
    (array,) = join_frames([frame()])
    assert gate.admit_many(STORED, array) is None
    assert admitted(gate, OTHER) == (count + 1, None), "what is not stored needs no room"
    assert gate.admit(STORED, frame(priority=9, size=100)) is not None, "lanes have room of their own"
    assert gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), count + 1)
    assert calls
    assert gate.admit(STORED, frame(size=100)) is not None


@in_loop
async def test_a_frame_longer_than_the_room_travels_alone() -> None:
    gate = open_gate(stream_bytes=4000)
    assert gate.admit(STORED, frame(size=10_000)) is not None
    assert gate.admit(STORED, frame()) is None
    assert gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), 1)
    assert gate.admit(STORED, frame()) is not None
    assert gate.admit(STORED, frame(size=10_000)) is None


@in_loop
async def test_connections_of_a_bus_share_the_room() -> None:
    room = LedgerRoom(4000)
    one, other = open_gate(room=room), open_gate(room=room, producer_id=PRODUCER + 1)
    told: list[str] = []
    one.on_room, other.on_room = lambda: told.append("one"), lambda: told.append("other")
    assert one.admit(STORED, frame(size=1800)) is not None
    assert other.admit(STORED, frame(size=1800)) is None
    for _ in range(2):
        one.confirmed_through(Ledger(PRODUCER, EPOCH, 0), one.newest(0).sequence)
        one.admit(STORED, frame(size=1800))
    assert told == ["other", "one", "one", "other"]
    one.close(ERROR)
    assert room.used == [0, 0, 0]
    assert other.admit(STORED, frame(size=1800)) is not None
    told.clear()
    other.fail(ERROR)
    assert told == ["other"]


@in_loop
async def test_failed_sends_have_the_error_given() -> None:
    gate = open_gate()
    futures = [admitted(gate)[1], admitted(gate, priority=9)[1]]
    gate.fail(ERROR)
    for future in futures:
        assert future is not None
        assert future.exception() is ERROR
    assert gate.unconfirmed == 0
    assert admitted(gate)[0] == 2
    gate.close(ERROR)
    with pytest.raises(UnconfirmedError):
        gate.admit(STORED, frame())
    (array,) = join_frames([frame()])
    with pytest.raises(UnconfirmedError):
        gate.admit_many(STORED, array)


@in_loop
async def test_cancelled_futures_do_no_harm() -> None:
    gate = open_gate()
    _, future = admitted(gate)
    assert future is not None
    future.cancel()
    assert gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), 1)
    _, future = admitted(gate)
    assert future is not None
    future.cancel()
    gate.fail(ERROR)
    assert gate.unconfirmed == 0


@in_loop
async def test_a_batch_is_numbered_as_its_messages_one_by_one() -> None:
    gate, single = open_gate(), open_gate()
    frames = [frame(size=size) for size in (5, 50, 500, 5)]
    (array,) = join_frames(frames)
    admitted(gate), admitted(single)
    found = gate.admit_many(STORED, array)
    assert found is not None
    numbered, future = found
    expected = [single.admit(STORED, parts) for parts in frames]
    assert isinstance(numbered, FrameArray)
    assert list(numbered.parts()) == [one[0] for one in expected if one is not None]
    assert gate.newest(0).sequence == 5
    assert gate.unconfirmed == 5
    assert future is not None
    assert gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), 4)
    assert not future.done()
    assert gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), 5)
    assert future.done()


@in_loop
async def test_a_refused_frame_uses_no_number() -> None:
    gate = open_gate()
    head, _ = frame()
    huge = head, bytes(64 << 20)
    with pytest.raises(JMSError, match="cannot be sent"):
        gate.admit(STORED, huge)
    (array,) = join_frames([huge])
    with pytest.raises(JMSError, match="cannot be sent"):
        gate.admit_many(STORED, array)
    assert admitted(gate)[0] == 1
    assert gate.unconfirmed == 1


# Ledgers that end.


def waits_of(gate: LedgerGate) -> list[tuple[Ledger, int]]:
    """Return a list to which the gate adds what it tells its owner."""
    told: list[tuple[Ledger, int]] = []
    gate.on_waiting = lambda ledger, through: told.append((ledger, through))
    return told


@in_loop
async def test_the_owner_is_told_once_a_turn_of_what_waits() -> None:
    gate = open_gate()
    told = waits_of(gate)
    admitted(gate), admitted(gate), admitted(gate, OTHER), admitted(gate, priority=9)
    assert told == []
    await asyncio.sleep(0)
    assert told == [(Ledger(PRODUCER, EPOCH, 0), 2), (Ledger(PRODUCER, EPOCH, 2), 1)]
    admitted(gate, OTHER)
    await asyncio.sleep(0)
    assert len(told) == 2


@in_loop
async def test_an_ended_ledger_is_followed_by_the_next_and_still_confirmed() -> None:
    gate = open_gate()
    told = waits_of(gate)
    first = Ledger(PRODUCER, EPOCH, 0)
    _, old = admitted(gate)
    other_lane = admitted(gate, priority=9)
    assert gate.end(first)
    assert told == [(first, 1)], "the owner hears of what waits in a ledger before it ends"
    assert not gate.end(first)
    found = gate.admit(STORED, frame())
    assert found is not None
    assert number_of(found[0]) == (PRODUCER, EPOCH + 1, 1)
    assert other_lane[0] == 1
    assert gate.newest(2) == (PRODUCER, EPOCH, 1), "lanes end apart"
    await asyncio.sleep(0)
    assert told[1:] == [(Ledger(PRODUCER, EPOCH, 2), 1), (Ledger(PRODUCER, EPOCH + 1, 0), 1)]
    assert old is not None
    new = found[1]
    assert new is not None
    assert old is not new
    assert gate.unconfirmed == 3
    assert not gate.confirmed_through(first, 2)
    assert gate.confirmed_through(first, 1)
    assert old.done()
    assert not new.done()
    assert not gate.confirmed_through(first, 1), "an ended ledger is forgotten when nothing waits"
    assert gate.confirmed_through(Ledger(PRODUCER, EPOCH + 1, 0), 1)
    assert new.done()
    assert gate.unconfirmed == 1


@in_loop
async def test_giving_up_fails_what_is_named() -> None:
    gate = open_gate(stream_bytes=4000)
    first = Ledger(PRODUCER, EPOCH, 0)
    _, failing = admitted(gate, size=500)
    await asyncio.sleep(0)
    _, waiting = admitted(gate, size=500)
    freed: list[LedgerNumber] = []
    gate.on_room = lambda: freed.append(gate.newest(0))
    gate.end(first)
    gate.give_up(first, 1, ERROR)
    assert failing is not None
    assert failing.exception() is ERROR
    assert waiting is not None
    assert not waiting.done()
    assert freed == [(PRODUCER, EPOCH + 1, 0)], "what gets room now is written into the next ledger"
    assert admitted_number(gate) == (PRODUCER, EPOCH + 1, 1)
    gate.give_up(Ledger(PRODUCER + 1, EPOCH, 0), 9, ERROR)
    gate.give_up(Ledger(PRODUCER, EPOCH, 200), 9, ERROR)
    assert not waiting.done()
    gate.give_up(first, 2, ERROR)
    assert waiting.exception() is ERROR
    assert gate.unconfirmed == 1
    gate.give_up(Ledger(PRODUCER, EPOCH + 1, 0), 1, ERROR)
    assert gate.unconfirmed == 0
    assert admitted_number(gate) == (PRODUCER, EPOCH + 1, 2), "a ledger goes on unless it is ended"


def admitted_number(gate: LedgerGate) -> LedgerNumber | None:
    """Return the number of the next frame."""
    found = gate.admit(STORED, frame())
    assert found is not None
    return number_of(found[0])


@in_loop
async def test_closing_fails_the_messages_of_ended_ledgers_too() -> None:
    room = LedgerRoom(4000)
    gate = open_gate(room=room)
    _, old = admitted(gate)
    gate.end(Ledger(PRODUCER, EPOCH, 0))
    _, new = gate.admit(STORED, frame()) or (None, None)
    gate.close(ERROR)
    assert old is not None
    assert new is not None
    assert old.exception() is new.exception() is ERROR
    assert room.used == [0, 0, 0]


@in_loop
async def test_ledgers_that_rest_end_and_those_in_use_do_not() -> None:
    gate = open_gate()
    admitted(gate, OTHER), admitted(gate), admitted(gate, priority=9)
    assert gate.end_resting() == []
    gate.confirmed_through(Ledger(PRODUCER, EPOCH, 2), 1)
    admitted(gate, OTHER, priority=5)
    assert gate.end_resting() == [Ledger(PRODUCER, EPOCH, 2)], "lane 0 waits, and lane 1 is new"
    assert gate.newest(2) == (PRODUCER, EPOCH + 1, 0)
    gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), 2)
    assert gate.end_resting() == [Ledger(PRODUCER, EPOCH, 0), Ledger(PRODUCER, EPOCH, 1)]
    assert gate.end_resting() == [], "a ledger without messages is not in use"


@in_loop
async def test_a_ledger_that_is_kept_open_may_rest() -> None:
    gate = open_gate()
    gate.is_kept_open = lambda lane: lane == 0
    admitted(gate, OTHER), admitted(gate, OTHER, priority=9)
    gate.end_resting()
    assert gate.end_resting() == [Ledger(PRODUCER, EPOCH, 2)]
    assert gate.newest(0) == (PRODUCER, EPOCH, 1)


@in_loop
async def test_numbered_frames_are_shown_as_they_are_sent() -> None:
    shown: list[tuple[Destination, Ledger, int, list[bytes]]] = []
    gate = open_gate()

    def show(destination: Destination, ledger: Ledger, first: int, frames: list[bytes]) -> None:
        shown.append((destination, ledger, first, frames))

    gate.on_numbered = show
    one = gate.admit(OTHER, frame(OTHER))
    assert gate.admit(OTHER, frame(OTHER, flags=0)) is not None, "this one has no number"
    (array,) = join_frames([frame(priority=9) for _ in range(2)])
    many = gate.admit_many(STORED, array)
    assert one is not None
    assert many is not None
    assert shown == [
        (OTHER, Ledger(PRODUCER, EPOCH, 0), 1, [b"".join(one[0])]),
        (STORED, Ledger(PRODUCER, EPOCH, 2), 1, [b"".join(parts) for parts in many[0].parts()]),
    ]


@in_loop
async def test_a_request_is_numbered_even_if_there_is_no_room() -> None:
    gate = open_gate(stream_bytes=2000)
    while gate.admit(STORED, frame(size=400)) is not None:
        pass
    before = gate.newest(0).sequence
    numbered, ledger, sequence, stored = gate.admit_request(frame(REQUESTS))
    assert (ledger, sequence) == (Ledger(PRODUCER, EPOCH, 0), before + 1)
    assert number_of(numbered) == (PRODUCER, EPOCH, sequence)
    gate.confirmed_through(ledger, before)
    assert not stored.done()
    gate.confirmed_through(ledger, sequence)
    assert stored.done()
    gate.close(ERROR)
    with pytest.raises(UnconfirmedError):
        gate.admit_request(frame(REQUESTS))


@in_loop
async def test_all_ledgers_with_messages_end_together() -> None:
    gate = open_gate()
    admitted(gate), admitted(gate, OTHER, priority=9)
    assert gate.end_all() == [Ledger(PRODUCER, EPOCH, 0), Ledger(PRODUCER, EPOCH, 2)]
    assert [gate.newest(lane) for lane in range(3)] == [
        (PRODUCER, EPOCH + 1, 0),
        (PRODUCER, EPOCH, 0),
        (PRODUCER, EPOCH + 1, 0),
    ]


@in_loop
async def test_keepers_store_queues_whatever_the_table_names() -> None:
    gate = open_gate()
    gate.is_stored = lambda _: False
    assert gate.holds(QUEUE, PERSISTENT)
    assert admitted(gate, QUEUE)[1] is not None
    assert admitted(gate, QUEUE, flags=0) == (2, None)
    assert admitted(gate)[1] is None
    (array,) = join_frames([frame(QUEUE)])
    found = gate.admit_many(QUEUE, array)
    assert found is not None
    assert found[1] is not None


@in_loop
async def test_last_values_wait_for_keepers_whatever_they_store() -> None:
    gate = open_gate()
    parts = retained_parts(frame(OTHER), retained_section("", 1))
    plain, value = gate.admit(OTHER, frame(OTHER)), gate.admit(OTHER, parts)
    assert plain is not None
    assert value is not None
    assert plain[1] is None
    assert value[1] is not None
    many = gate.admit_many(OTHER, join_frames([parts, parts])[0])
    assert many is not None
    assert many[1] is value[1]
    assert not gate.holds(OTHER, PERSISTENT)
    assert gate.holds(OTHER, PERSISTENT | RETAINED_SEND)
    assert not gate.holds(OTHER, RETAINED_SEND)
    gate.confirmed_through(Ledger(PRODUCER, EPOCH, 0), 4)
    assert value[1].done()


@in_loop
async def test_each_ledger_begins_with_a_call() -> None:
    gate, begun = open_gate(), list[int]()
    gate.on_begun = begun.append
    assert admitted(gate, flags=0) == (None, None)
    assert begun == []
    admitted(gate)
    admitted(gate, priority=9)
    admitted(gate, OTHER)
    assert begun == [0, 2]
    gate.end_all()
    gate.admit_request(frame(REQUESTS))
    gate.admit_request(frame(REQUESTS))
    assert begun == [0, 2, 0]
    (array,) = join_frames([frame(priority=9)])
    assert gate.admit_many(STORED, array) is not None
    assert begun == [0, 2, 0, 2]
