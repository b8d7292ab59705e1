"""Tests of delayed messages that wait in a process: bounded, in order, and for those who are still there."""

import asyncio
import time

from fjm2.bus.routing.delayed_messages import DelayedMessages


class Held:
    """Delayed messages of a test, and what was delivered to whom."""

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        self.messages: DelayedMessages[str] = DelayedMessages(bytes_max)
        self.delivered: list[tuple[str, str]] = []

    def hold(self, name: str, delay_ms: float, *subscriptions: str, size: int = 100) -> bool:
        def deliver(still: list[str]) -> None:
            self.delivered += [(name, each) for each in still]

        return self.messages.hold(int(time.time() * 1000 + delay_ms), size, list(subscriptions), deliver)

    async def until(self, count: int) -> None:
        """Wait until so many were delivered."""
        for _ in range(1000):
            if len(self.delivered) >= count:
                return
            await asyncio.sleep(0.005)
        raise AssertionError(self.delivered)


def test_messages_come_by_time_and_then_in_order() -> None:
    async def run() -> None:
        held = Held()
        due = time.time() * 1000 + 50
        for name, at in (("c", due + 100), ("a", due), ("b", due)):
            held.messages.hold(int(at), 10, ["one"], lambda _, name=name: held.delivered.append((name, "one")))
        await held.until(3)
        assert [name for name, _ in held.delivered] == ["a", "b", "c"]
        assert time.time() * 1000 >= int(due + 100)
        assert (len(held.messages), held.messages.bytes) == (0, 0)

    asyncio.run(run())


def test_those_who_leave_get_nothing() -> None:
    async def run() -> None:
        held = Held()
        held.hold("a", 50, "one", "two")
        held.hold("b", 10, "one")
        held.messages.forget("one")
        assert len(held.messages) == 1
        await held.until(1)
        held.messages.forget("two")
        assert held.delivered == [("a", "two")]
        assert held.messages.bytes == 0

    asyncio.run(run())


def test_memory_is_bounded_and_comes_free() -> None:
    async def run() -> None:
        held = Held(bytes_max=10_000)
        taken = sum(held.hold(str(number), 60_000, "one", size=1000) for number in range(100))
        assert 1 < taken < 10
        assert held.messages.bytes <= 10_000
        held.messages.forget("one")
        assert (len(held.messages), held.messages.bytes) == (0, 0)
        assert held.hold("large", 1, "one", size=100_000), "a message that is larger than the bound is held alone"
        await held.until(1)

    asyncio.run(run())


def test_what_is_due_long_ago_comes_at_once() -> None:
    async def run() -> None:
        held = Held()
        held.hold("a", -1e9, "one")
        await held.until(1)

    asyncio.run(run())


def test_a_far_future_does_no_harm() -> None:
    async def run() -> None:
        held = Held()
        held.messages.hold((1 << 63) - 1, 10, ["one"], lambda _: None)
        held.messages.hold(-(1 << 63), 10, ["one"], lambda _: held.delivered.append(("b", "one")))
        await held.until(1)
        assert len(held.messages) == 1

    asyncio.run(run())
