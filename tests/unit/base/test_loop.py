"""Tests of the turn of an event loop, in virtual time. This file simulates the loop, the machine and the sockets."""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any, cast

import pytest

from fjm2.base.event_loop import uvloop_class
from fjm2.base.loop import NEVER, SEND_BUDGET_S, LoopDriver, TrainReader, Waitable, call_not_before

TICK_S = 0.0003
"""Virtual time that sending a train takes."""


class Handle:
    """A handle of a scheduled call, which can be cancelled."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class VirtualLoop:
    """The parts of an event loop that a turn needs. Its timers have a resolution of 1 ms, like those of uvloop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: deque[Handle] = deque()
        self.timers: list[tuple[float, int, Handle]] = []
        self.timers_armed = 0
        self.readers: dict[int, Callable[[], None]] = {}
        self.writers: dict[int, Callable[[], None]] = {}
        self._numbers = count()

    def as_loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def clock(self) -> float:
        return self.now

    def call_soon(self, call: Callable[..., None], *args: Any) -> Handle:
        handle = Handle(lambda: call(*args))
        self.soon.append(handle)
        return handle

    def call_later(self, delay_s: float, call: Callable[..., None], *args: Any) -> Handle:
        handle = Handle(lambda: call(*args))
        self.timers_armed += 1
        heapq.heappush(self.timers, (self.now + round(delay_s * 1000) / 1000, next(self._numbers), handle))
        return handle

    def add_reader(self, number: int, call: Callable[..., None], *args: Any) -> None:
        self.readers[number] = lambda: call(*args)

    def remove_reader(self, number: int) -> None:
        self.readers.pop(number, None)

    def add_writer(self, number: int, call: Callable[..., None], *args: Any) -> None:
        self.writers[number] = lambda: call(*args)

    def remove_writer(self, number: int) -> None:
        self.writers.pop(number, None)

    def run_soon(self) -> int:
        """Run the calls scheduled for the next turn that are not cancelled. Return their number."""
        calls, self.soon = self.soon, deque()
        live = [handle for handle in calls if not handle.is_cancelled]
        for handle in live:
            handle.call()
        return len(live)

    def run_timer(self) -> float:
        """Advance the time to the next timer, run the timer, and return the time."""
        while True:
            at, _, handle = heapq.heappop(self.timers)
            if not handle.is_cancelled:
                self.now = max(self.now, at)
                handle.call()
                return self.now


class Socket:
    """A simulated socket. It has room for a number of trains to send, and trains to read."""

    def __init__(self, number: int, room: int = 1000) -> None:
        self.number = number
        self.room = room
        self.sent: list[str] = []
        self.arrived: deque[str] = deque()
        self.taken: deque[str] = deque()
        self.is_busy = True

    def fileno(self) -> int:
        return self.number

    @property
    def has_taken(self) -> bool:
        return bool(self.taken)

    def receive(self) -> str | None:
        if self.taken:
            return self.taken.popleft()
        return self.arrived.popleft() if self.arrived else None


class World:
    """A scripted machine, the driver under test, and one socket to send on."""

    def __init__(self, timer_min_s: float = 0.0) -> None:
        self.loop = VirtualLoop()
        self.socket = Socket(7)
        self.trains: deque[str] = deque()
        self.timeout_at = NEVER
        self.timeouts: list[float] = []
        self.happened: list[str] = []
        self.driver: LoopDriver[str] = LoopDriver(
            self,
            self.send,
            lambda: self.happened.append("dispatched"),
            prepare=lambda _: self.happened.append("prepared"),
            timer_min_s=timer_min_s,
            clock=self.loop.clock,
        )

    def open(self) -> "World":
        self.driver.open(self.loop.as_loop())
        return self

    def settle(self) -> None:
        self.driver.settle(self.loop.now)

    def handle_timeout(self, now: float) -> None:
        self.timeouts.append(now)
        if now >= self.timeout_at:
            self.timeout_at = NEVER

    def poll_train(self, now: float) -> str | None:
        assert now <= self.loop.now
        return self.trains.popleft() if self.trains else None

    def poll_timeout(self) -> float:
        return self.timeout_at

    def send(self, train: str, now: float) -> Waitable | None:
        assert now <= self.loop.now
        if not self.socket.room:
            return self.socket
        self.socket.room -= 1
        self.socket.sent.append(train)
        self.loop.now += TICK_S
        self.happened.append("sent")
        return None


@pytest.fixture
def world() -> World:
    return World().open()


def test_a_turn_prepares_then_sends_then_dispatches(world: World) -> None:
    world.trains.extend(["a", "b"])
    world.settle()
    assert world.happened == ["prepared", "sent", "sent", "dispatched"]
    assert world.socket.sent == ["a", "b"]


def test_wakes_of_one_turn_are_one_turn(world: World) -> None:
    for _ in range(5):
        world.driver.wake()
    assert world.loop.run_soon() == 1
    assert world.loop.run_soon() == 0
    assert world.happened == ["prepared", "dispatched"]


def test_writers_hand_over_once_before_trains_are_sent(world: World) -> None:
    def hand_over() -> None:
        world.trains.append("written")
        world.happened.append("handed over")

    for _ in range(3):
        world.driver.wake(hand_over)
    world.loop.run_soon()
    assert world.happened == ["handed over", "prepared", "sent", "dispatched"]


def test_sending_stops_after_its_time_slice_and_continues_after_others(world: World) -> None:
    world.trains.extend(map(str, range(10)))
    world.settle()
    a_turn = int(SEND_BUDGET_S / TICK_S) + 1
    assert len(world.socket.sent) == a_turn
    world.loop.run_soon()
    assert len(world.socket.sent) == 2 * a_turn
    while world.loop.run_soon():
        pass
    assert world.socket.sent == list(map(str, range(10)))


def test_a_train_that_finds_no_room_is_sent_first_once_there_is_some(world: World) -> None:
    world.socket.room = 1
    world.trains.extend(["a", "b", "c"])
    world.settle()
    assert (world.socket.sent, world.driver.held, world.driver.sends_blocked) == (["a"], "b", 1)
    world.settle()  # another input comes while the kernel is still full
    assert (world.driver.held, world.driver.sends_blocked, list(world.loop.writers)) == ("b", 1, [7])
    world.socket.room = 2
    world.loop.writers[7]()
    assert (world.socket.sent, world.driver.held, world.loop.writers) == (["a", "b", "c"], None, {})


def test_no_train_is_lost_if_the_kernel_fills_up_again_before_it_reports_room(world: World) -> None:
    world.socket.room = 0
    world.trains.extend(["a", "b"])
    world.settle()
    world.socket.room = 1
    world.settle()
    assert (world.socket.sent, world.driver.held) == (["a"], "b")
    world.socket.room = 1
    world.loop.writers[7]()
    assert world.socket.sent == ["a", "b"]


def test_the_driver_waits_for_the_socket_that_is_full(world: World) -> None:
    other = Socket(8)
    world.driver.hold("a", world.socket)
    world.driver.hold("b", other)
    assert (world.driver.held, list(world.loop.writers)) == ("b", [8])


def test_a_dropped_train_is_not_waited_for(world: World) -> None:
    world.driver.hold("a", world.socket)
    world.driver.drop_held()
    world.settle()
    assert (world.socket.sent, world.driver.held, world.loop.writers) == ([], None, {})


@pytest.mark.parametrize("delay_s", [0.0001, 0.001, 0.0014, 0.0016, 0.25])
def test_the_timer_never_comes_early(world: World, delay_s: float) -> None:
    world.timeout_at = at = world.loop.now + delay_s
    world.settle()
    assert at - 1e-9 <= world.loop.run_timer() < at + 0.001
    assert (len(world.timeouts), world.loop.timers_armed) == (1, 1)


def test_a_timer_whose_deadline_stays_is_armed_once(world: World) -> None:
    world.timeout_at = world.loop.now + 1
    for _ in range(5):
        world.settle()
    assert world.loop.timers_armed == 1
    world.timeout_at = world.loop.now + 0.5
    world.settle()
    assert world.loop.timers_armed == 2
    assert world.loop.run_timer() == pytest.approx(100.5)
    assert all(handle.is_cancelled for _, _, handle in world.loop.timers)


@pytest.mark.parametrize("timer_min_s", [0.0, 0.001])
def test_a_deadline_that_has_passed_waits_for_the_shortest_time_allowed(timer_min_s: float) -> None:
    world = World(timer_min_s).open()
    world.timeout_at = world.loop.now - 1
    world.settle()
    assert world.loop.run_timer() == pytest.approx(100.0 + timer_min_s)


def test_nothing_happens_before_it_is_open() -> None:
    world = World()
    world.trains.append("a")
    world.driver.wake()
    world.settle()
    assert (world.happened, len(world.loop.soon)) == ([], 0)


def test_nothing_happens_after_it_is_closed(world: World) -> None:
    world.timeout_at = world.loop.now + 1
    world.settle()
    world.driver.hold("a", world.socket)
    world.driver.wake()
    world.driver.close()
    world.driver.close()
    world.happened.clear()
    world.driver.wake()
    world.settle()
    assert (world.loop.run_soon(), world.loop.writers, world.happened) == (0, {}, [])
    assert all(handle.is_cancelled for _, _, handle in world.loop.timers)


class Reading:
    """A record of the trains that are read from one simulated socket."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.socket = Socket(7)
        self.received: list[str] = []
        self.settled: list[float] = []
        self.reader: TrainReader[str] = TrainReader(
            self.loop.as_loop(), self.settled.append, trains_per_turn=4, clock=self.loop.clock
        )
        self.reader.watch(self.socket, self.receive)

    def receive(self, train: str, now: float) -> None:
        assert now == 100.0, "the time the turn began"
        self.received.append(train)
        self.loop.now += TICK_S


def test_a_turn_reads_no_more_trains_than_allowed_and_settles_once() -> None:
    reading = Reading()
    reading.socket.arrived.extend("abcdef")
    reading.loop.readers[7]()
    assert (reading.received, reading.settled) == (list("abcd"), [100.0])
    assert not reading.loop.soon, "the kernel still reports the file as readable"
    reading.loop.now = 100.0
    reading.loop.readers[7]()
    assert (reading.received, reading.settled) == (list("abcdef"), [100.0, 100.0])


def test_trains_that_no_longer_make_the_file_readable_are_read_soon() -> None:
    reading = Reading()
    reading.socket.taken.extend("abcde")
    reading.loop.readers[7]()
    assert reading.received == list("abcd")
    reading.loop.now = 100.0
    reading.loop.run_soon()
    assert (reading.received, len(reading.settled), len(reading.loop.soon)) == (list("abcde"), 2, 0)


def test_what_a_train_that_comes_alone_has_woken_runs_before_the_socket_is_read_again() -> None:
    reading = Reading()
    reading.socket.is_busy = False
    reading.socket.arrived.extend("ab")
    happened: list[str] = []
    reading.reader = TrainReader(
        reading.loop.as_loop(),
        lambda _: reading.loop.as_loop().call_soon(happened.append, "woken"),
        trains_per_turn=4,
        clock=reading.loop.clock,
    )
    reading.reader.watch(reading.socket, lambda train, _: happened.append(train))
    reading.loop.readers[7]()
    assert happened == ["a"]
    while reading.loop.run_soon():
        pass
    assert happened == ["a", "woken", "b", "woken"]
    assert not reading.loop.soon, "the socket is empty"


def test_a_socket_that_is_closed_by_what_it_received_is_not_read_again() -> None:
    reading = Reading()
    reading.socket.is_busy = False
    reading.socket.arrived.extend("ab")
    reading.reader = TrainReader(
        reading.loop.as_loop(), lambda _now: reading.reader.clear(), trains_per_turn=4, clock=reading.loop.clock
    )
    reading.reader.watch(reading.socket, reading.receive)
    reading.loop.readers[7]()
    assert reading.received == ["a"]


def test_a_cleared_reader_reads_nothing_more() -> None:
    reading = Reading()
    reading.socket.taken.extend("abcdef")
    reading.loop.readers[7]()
    reading.reader.clear()
    reading.loop.run_soon()
    assert (reading.received, len(reading.settled), reading.loop.readers) == (list("abcd"), 1, {})


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop_class()])
def test_a_call_comes_when_the_clock_of_the_loop_has_reached_its_time(
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None,
) -> None:
    """uvloop's `call_at` comes up to a millisecond early."""

    async def look() -> None:
        loop = asyncio.get_running_loop()
        for part in range(60):
            at = loop.time() + part * 0.00007
            came: asyncio.Future[float] = loop.create_future()
            call_not_before(loop, at, lambda came=came: came.set_result(loop.time()))  # type: ignore[misc]
            assert await came >= at

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(look())
