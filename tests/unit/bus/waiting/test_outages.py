"""Only the first wait of an outage takes its time, and the exception listener hears of it once, and of its end once."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from fjm2.bus.confirmation import Confirmation, LaneConfirmation
from fjm2.bus.errors import UnconfirmedError
from fjm2.bus.losses.names import PeerNames
from fjm2.bus.statistics import BusStats
from fjm2.bus.waiting.outages import End, OutageReports, Outages

DESK, OTHER, FULL = 7, 8, 9
ACK_TIMEOUT_S = 0.3
ROUND_TRIP_S = 0.005
FOREVER_S = 20.0


@dataclass
class Outcome:
    acked: frozenset[int]
    failed: frozenset[int]


@dataclass
class Session:
    """A session whose receivers confirm if they are alive."""

    alive: set[int]
    full_receivers: set[int] = field(default_factory=set)
    silent_receivers: frozenset[int] = frozenset()
    evicted_receivers: frozenset[int] = frozenset()
    receivers: set[int] = field(default_factory=set)
    asked: list[frozenset[int]] = field(default_factory=list)

    async def watermark(self, nodes: Iterable[int], *, timeout_s: float) -> Outcome:
        assert timeout_s > 0
        self.asked.append(frozenset(nodes))
        await asyncio.sleep(ROUND_TRIP_S)
        asked, answering = frozenset(nodes), self.alive - self.full_receivers
        return Outcome(asked & answering, asked - answering)


@dataclass
class Lane:
    session: Session
    stream: None = None
    given_bytes: int = 0
    confirmed_upto: dict[int, int] = field(default_factory=dict)


@dataclass
class Lanes:
    with_streams: list[Lane]


class Bus:
    """The part of a bus that confirms, over receivers that the test lets live and die."""

    def __init__(self, *subscribers: int) -> None:
        self.session = Session(set(subscribers))
        self.subscribers = frozenset(subscribers)
        self.stats = BusStats()
        names = PeerNames()
        names.note_host(DESK, "10.0.0.13")
        names.note_client(DESK, 1, "desk-7")
        self.lane: Any = Lane(self.session)
        lanes: Any = Lanes([self.lane])
        self.outages = Outages(self.stats, names)
        self.lanes = LaneConfirmation(lanes, lambda _: self.subscribers, ACK_TIMEOUT_S, self.outages)

    async def confirmed(self) -> frozenset[int]:
        return await self.lanes.confirmed()


class Sender:
    """A connection that sends PERSISTENT messages, and keeps the errors of its listener."""

    def __init__(self, bus: Bus) -> None:
        self.errors: list[Exception] = []
        self.confirmation = Confirmation(bus, self.errors.append)

    def send(self) -> None:
        self.confirmation.accepted += 1
        self.confirmation.unasked += 1
        if not self.confirmation.is_running:
            self.confirmation.start()

    async def outcome(self) -> tuple[float, Exception | None]:
        """Send a message, and return for how long its outcome was awaited, and the outcome."""
        self.confirmation.accepted += 1
        if not self.confirmation.is_running:
            self.confirmation.start()
        began = asyncio.get_running_loop().time()
        error = await self.confirmation.outcome()
        return asyncio.get_running_loop().time() - began, error


async def soon(condition: Callable[[], object]) -> None:
    deadline = asyncio.get_running_loop().time() + FOREVER_S
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.002)


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        asyncio.run(main())

    return test


@run
async def test_only_the_first_wait_of_an_outage_takes_its_time() -> None:
    bus = Bus(DESK, OTHER)
    sender, another = Sender(bus), Sender(bus)
    waited_s, error = await sender.outcome()
    assert (error, waited_s < ACK_TIMEOUT_S) == (None, True)
    bus.session.alive.remove(DESK)
    waited_s, error = await sender.outcome()
    assert isinstance(error, UnconfirmedError)
    assert waited_s >= ACK_TIMEOUT_S
    assert error.unacknowledged_nodes == {DESK}
    for each in (sender, another, sender):
        waited_s, error = await each.outcome()
        assert isinstance(error, UnconfirmedError)
        assert "'desk-7' at 10.0.0.13" in str(error)
        assert "nobody waits" in str(error)
        assert waited_s < ACK_TIMEOUT_S / 2
        assert bus.session.asked[-1] == {OTHER}
    assert bus.stats.outages == 1
    assert sender.errors == []  # callers were told


@run
async def test_who_is_forgotten_while_asked_has_not_confirmed_and_who_says_goodbye_need_not() -> None:
    for expired, told in ((frozenset({DESK}), {DESK}), (frozenset[int](), None)):
        bus = Bus(DESK, OTHER)
        sender = Sender(bus)
        bus.session.alive.remove(DESK)
        asking = asyncio.create_task(sender.outcome())
        await soon(lambda bus=bus: bus.session.asked)
        bus.subscribers = frozenset({OTHER})
        bus.lanes.expired = expired
        _, error = await asking
        assert (error.unacknowledged_nodes if isinstance(error, UnconfirmedError) else error) == told


@run
async def test_an_outage_that_begins_in_a_round_that_a_close_cuts_short_is_told() -> None:
    bus = Bus(DESK, OTHER)
    sender = Sender(bus)
    bus.session.alive.remove(DESK)
    waiting = Lane(Session({DESK, OTHER}, full_receivers={DESK}))
    lanes: Any = Lanes([bus.lane, waiting])
    bus.lanes = LaneConfirmation(lanes, lambda _: bus.subscribers, ACK_TIMEOUT_S, bus.outages)
    sender.send()
    await soon(lambda: bus.outages.nodes)
    assert sender.errors == []
    await sender.confirmation.close()
    first, _ = sender.errors
    assert isinstance(first, UnconfirmedError)
    assert first.unacknowledged_nodes == {DESK}


@run
async def test_who_died_before_the_latest_message_was_complete_has_not_confirmed_it() -> None:
    bus = Bus(OTHER)
    sender = Sender(bus)
    sender.confirmation.accepted += 1
    sender.confirmation.fail_latest({DESK})
    sender.confirmation.start()
    error = await sender.confirmation.outcome()
    assert isinstance(error, UnconfirmedError)
    assert error.unacknowledged_nodes == {DESK}
    _, error = await sender.outcome()
    assert error is None


@run
async def test_the_listener_hears_of_an_outage_once_and_of_its_end_with_a_summary() -> None:
    bus = Bus(DESK, OTHER)
    sender = Sender(bus)
    bus.session.alive.remove(DESK)
    sender.send()
    await soon(lambda: sender.errors)
    for _ in range(20):
        sender.send()
        await soon(lambda: not sender.confirmation.pending)
    (first,) = sender.errors
    assert isinstance(first, UnconfirmedError)
    assert (first.unacknowledged_nodes, first.subscribers) == ({DESK}, ("'desk-7' at 10.0.0.13",))
    assert first.messages is None
    bus.session.alive.add(DESK)
    bus.lanes.tick()
    await asyncio.sleep(5 * ROUND_TRIP_S)
    assert len(sender.errors) == 1  # nothing was heard of it
    bus.session.receivers.add(DESK)
    bus.lanes.tick()
    await soon(lambda: len(sender.errors) == 2)
    summary = sender.errors[1]
    assert isinstance(summary, UnconfirmedError)
    assert summary.messages == 21
    assert summary.since is not None
    assert summary.until is not None
    assert summary.since <= summary.until
    assert "did not confirm 21 persistent messages between" in str(summary)
    assert "it confirms again" in str(summary)
    waited_s, error = await sender.outcome()
    assert (error, waited_s < ACK_TIMEOUT_S) == (None, True)
    assert bus.session.asked[-1] == {DESK, OTHER}


@run
async def test_one_that_is_heard_but_does_not_confirm_is_asked_seldom() -> None:
    bus = Bus(DESK, OTHER)
    bus.session.alive.remove(DESK)
    await bus.confirmed()
    bus.session.receivers.add(DESK)
    bus.lanes.tick()
    await asyncio.sleep(0.7)
    before = len(bus.session.asked)
    for _ in range(30):
        bus.lanes.tick()
    await asyncio.sleep(2 * ROUND_TRIP_S)
    assert len(bus.session.asked) == before
    assert bus.outages.nodes == {DESK}


def test_the_pause_between_two_requests_grows() -> None:
    outages = Outages(BusStats(), PeerNames())
    outages.begin(DESK)
    asked_at = []
    for tenth in range(600):
        outages.note_heard(DESK)
        if outages.take_heard(tenth / 10):
            asked_at.append(tenth / 10)
    pauses = [after - before for before, after in pairwise(asked_at)]
    assert pauses[:3] == pytest.approx([1.0, 2.0, 4.0])
    assert set(pauses[3:]) == {5.0}


@run
async def test_one_that_leaves_ends_its_outage() -> None:
    bus = Bus(DESK, OTHER)
    sender = Sender(bus)
    bus.session.alive.remove(DESK)
    sender.send()
    await soon(lambda: sender.errors)
    bus.subscribers = frozenset((OTHER,))
    bus.lanes.tick()
    assert "this subscriber left, or is not heard of any more" in str(sender.errors[1])
    bus.subscribers = frozenset((DESK, OTHER))
    sender.send()
    await soon(lambda: len(sender.errors) == 3)
    assert bus.stats.outages == 2


@run
async def test_one_that_is_gone_before_others_confirm_is_not_reported_again() -> None:
    """A round that began while a subscriber was down goes on until another one, which died later, is found."""
    bus = Bus(DESK, OTHER)
    sender = Sender(bus)
    bus.session.alive.remove(DESK)
    sender.send()
    await soon(lambda: sender.errors)
    bus.session.alive.clear()
    sender.send()
    await asyncio.sleep(ACK_TIMEOUT_S / 2)
    bus.subscribers = frozenset((OTHER,))
    bus.lanes.tick()
    await soon(lambda: bus.outages.nodes == {OTHER} and not sender.confirmation.pending)
    texts = list(map(str, sender.errors))
    assert len(texts) == 3
    assert "'desk-7'" in texts[0]
    assert "'desk-7'" in texts[1]
    assert "this subscriber left, or is not heard of any more" in texts[1]
    assert "1 subscriber did not confirm" in texts[2]
    assert "'desk-7'" not in texts[2]


@run
async def test_the_close_of_the_connection_ends_it_for_this_connection() -> None:
    bus = Bus(DESK, OTHER)
    sender, another = Sender(bus), Sender(bus)
    bus.session.alive.remove(DESK)
    for each in (sender, another):
        each.send()
    await soon(lambda: sender.errors and another.errors)
    await sender.confirmation.close()
    assert ["this connection is closed" in str(error) for error in sender.errors] == [False, True]
    assert len(another.errors) == 1
    bus.outages.end([DESK], End.BACK)
    assert (len(sender.errors), len(another.errors)) == (2, 2)


@run
async def test_an_evicted_one_is_not_waited_for() -> None:
    bus = Bus(DESK, OTHER)
    bus.session.alive.remove(DESK)
    bus.session.evicted_receivers = frozenset((DESK,))
    waited_s, error = await Sender(bus).outcome()
    assert isinstance(error, UnconfirmedError)
    assert waited_s < ACK_TIMEOUT_S


@run
async def test_one_that_is_full_is_waited_for_as_long_as_it_is_full() -> None:
    bus = Bus(FULL, OTHER)
    sender = Sender(bus)
    bus.session.full_receivers.add(FULL)
    outcome = asyncio.create_task(sender.outcome())
    await asyncio.sleep(3 * ACK_TIMEOUT_S)
    assert not outcome.done()
    assert not bus.outages.nodes
    bus.session.full_receivers.clear()
    waited_s, error = await outcome
    assert error is None
    assert waited_s >= 3 * ACK_TIMEOUT_S


@run
async def test_a_full_one_does_not_keep_a_dead_one_from_being_found() -> None:
    bus = Bus(FULL, DESK)
    bus.session.full_receivers.add(FULL)
    bus.session.alive.remove(DESK)
    outcome = asyncio.create_task(Sender(bus).outcome())
    await soon(lambda: bus.outages.nodes == {DESK})
    bus.session.full_receivers.clear()
    _, error = await outcome
    assert isinstance(error, UnconfirmedError)
    assert error.unacknowledged_nodes == {DESK}


def test_an_outage_that_ended_meanwhile_leaves_nothing_behind() -> None:
    errors: list[Exception] = []
    reports = OutageReports(PeerNames(), errors.append)
    reports.note_round(frozenset((DESK,)), 3, True, 1.0, down=frozenset())
    reports.note_end(DESK, End.BACK)
    reports.close()
    assert len(errors) == 1


def test_several_are_reported_together_and_each_has_a_summary() -> None:
    errors: list[Any] = []
    reports = OutageReports(PeerNames(), errors.append, clock=lambda: 20.0)
    down = frozenset((DESK, OTHER))
    reports.note_round(down, 3, True, 10.0, down)
    reports.note_round(down, 4, False, 11.0, down)
    reports.note_end(OTHER, End.GONE)
    reports.close()
    assert [error.unacknowledged_nodes for error in errors] == [{DESK, OTHER}, {OTHER}, {DESK}]
    assert [error.messages for error in errors] == [None, 7, 7]
    assert [(error.since, error.until) for error in errors[1:]] == [(10.0, 20.0)] * 2


def test_asked_sends_alone_report_nothing_to_the_listener() -> None:
    errors: list[Exception] = []
    reports = OutageReports(PeerNames(), errors.append)
    reports.note_round(frozenset((DESK,)), 3, False, 1.0, down=frozenset((DESK,)))
    reports.note_end(DESK, End.BACK)
    assert errors == []


@run
async def test_first_confirmations_are_told_once() -> None:
    bus, told = Bus(DESK, OTHER), []
    bus.lanes.on_confirmed = lambda _, nodes: told.append(nodes)
    bus.session.alive.remove(OTHER)
    await bus.confirmed()
    await bus.confirmed()
    assert told == [{DESK}]
    bus.session.alive.add(OTHER)
    await bus.lanes.confirm(bus.lane, {DESK, OTHER})
    assert told == [{DESK}, {OTHER}]
