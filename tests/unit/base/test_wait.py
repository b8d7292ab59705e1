"""Tests of the wait of one coroutine: it is woken, and ends after a time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fjm2.base.event_loop import uvloop_class
from fjm2.base.wait import Wait

LONG_S = 3600.0


@pytest.fixture(params=[None, uvloop_class()], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run_and_close(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(main)

    return run_and_close


Run = Callable[[Coroutine[Any, Any, None]], None]


def test_each_wake_ends_one_wait(run: Run) -> None:
    async def main() -> None:
        wait, loop, woken = Wait(), asyncio.get_running_loop(), 0
        wait.wake()  # nobody waits
        for _ in range(3):
            loop.call_soon(wait.wake)
            loop.call_soon(wait.wake)
            await wait
            woken += 1
        assert woken == 3
        assert not wait.is_over

    run(main())


def test_it_is_over_after_its_time(run: Run) -> None:
    async def main() -> None:
        wait = Wait()
        wait.end_after(0.001)
        async with asyncio.timeout(LONG_S):
            await wait
        assert wait.is_over
        wait.close()

    run(main())


def test_closing_it_leaves_no_timer(run: Run) -> None:
    async def main() -> None:
        wait, loop = Wait(), asyncio.get_running_loop()
        wait.end_after(0.0)
        wait.close()
        passed = loop.create_future()
        loop.call_later(0.01, passed.set_result, None)
        await passed
        assert not wait.is_over

    run(main())


def test_it_can_be_cancelled(run: Run) -> None:
    async def main() -> None:
        wait = Wait()

        async def waiter() -> None:
            await wait

        task = asyncio.create_task(waiter())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        wait.wake()  # harmless

    run(main())
