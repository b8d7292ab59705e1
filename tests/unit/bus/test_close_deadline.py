"""Tests of the deadline for closing a connection."""

import asyncio
import time

import pytest

from fjm2.bus.closing import CloseDeadline


class Bus:
    """A bus that makes progress only when a test says so."""

    repairs_max = 10
    round_trip_s = 0.0

    def __init__(self) -> None:
        self.steps = self.repairs = 0

    @property
    def progress(self) -> tuple[int, int]:
        return self.steps, self.repairs


async def over_after(bus: Bus, still_s: float, timeout_s: float | None = None) -> float:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with CloseDeadline(bus, still_s, timeout_s).wait():
            await asyncio.sleep(30)
    return time.monotonic() - began


async def busy(turn_s: float) -> float:
    async def work() -> None:
        while True:
            time.sleep(turn_s)  # noqa: ASYNC251
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    try:
        return await over_after(Bus(), 0.2)
    finally:
        working.cancel()


@pytest.mark.parametrize("turn_s", [0.0, 0.06, 0.11])
def test_a_busy_loop_does_not_extend_the_deadline(turn_s: float) -> None:
    assert 0.2 <= asyncio.run(busy(turn_s)) < 3


def test_progress_extends_the_deadline() -> None:
    async def run() -> float:
        bus = Bus()

        async def work() -> None:
            for _ in range(6):
                await asyncio.sleep(0.1)
                bus.steps += 1

        working = asyncio.create_task(work())
        took = await over_after(bus, 0.3)
        await working
        return took

    assert asyncio.run(run()) >= 0.85


def test_the_deadline_leaves_time_for_some_round_trips_but_not_for_any_number() -> None:
    async def run() -> tuple[float, float]:
        bus = Bus()
        bus.round_trip_s = 0.1
        near = await over_after(bus, 0.2)
        bus.round_trip_s = 1000.0
        return near, CloseDeadline(bus, 0.2).expires_at() - asyncio.get_running_loop().time()

    near, far = asyncio.run(run())
    assert 0.6 <= near < 3
    assert far <= 10.0


def test_endless_repairs_do_not_extend_the_deadline_forever() -> None:
    async def run() -> float:
        bus = Bus()

        async def ask() -> None:
            while True:
                await asyncio.sleep(0.02)
                bus.repairs += 1

        asking = asyncio.create_task(ask())
        try:
            return await over_after(bus, 0.2)
        finally:
            asking.cancel()

    assert 0.3 <= asyncio.run(run()) < 3


def test_a_timeout_bounds_the_whole_wait() -> None:
    async def run() -> float:
        bus = Bus()

        async def work() -> None:
            while True:
                bus.steps += 1
                await asyncio.sleep(0.02)

        working = asyncio.create_task(work())
        try:
            return await over_after(bus, 5.0, timeout_s=0.2)
        finally:
            working.cancel()

    assert 0.15 <= asyncio.run(run()) < 2
