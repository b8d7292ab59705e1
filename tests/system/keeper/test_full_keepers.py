"""Keepers whose stores are full and differ, as processes: a manager is found, and nothing is lost."""

import asyncio
import json
import signal
from typing import Any

import pytest
from keepers import Keepers, Writer, run_command, uri_of, writing

pytestmark = pytest.mark.calm

BODY_BYTES = 100_000
SMALL_STORE, LARGE_STORE = 16 << 20, 24 << 20
_REFUSED_S = 3.0
"""Time without a confirmation after which the stores are full."""


def status_of(port: int) -> dict[str, dict[str, Any]]:
    """Return what the keepers of a bus say, by the name of their directory."""
    told = json.loads(run_command("status", "--uri", uri_of(port), "--json").stdout)
    return {each["keeper_id"]: each for each in told["keepers"]}


async def fill(writer: Writer) -> int:
    """Send until no cell confirms it any more. Return the number of messages that were confirmed."""
    for number in range(1000):
        try:
            await writer.stored(writer.send(b"%03d" % number * (BODY_BYTES // 3)), _REFUSED_S)
        except AssertionError:
            return number
    raise AssertionError("the stores do not fill up")


def test_a_keeper_with_less_room_than_the_others_lets_them_serve(cell_of_three: Keepers) -> None:
    keepers = cell_of_three
    sizes = {"a": SMALL_STORE, "b": LARGE_STORE, "c": LARGE_STORE}

    def start(name: str) -> Any:
        return keepers.start(name, "--store-bytes", sizes[name])

    def has_all(port: int) -> bool:
        return [each["lag"] for each in status_of(port).values()] == [0, 0, 0]

    async def check() -> None:
        async with writing(keepers.port) as writer:
            confirmed = await fill(writer)
            assert confirmed * BODY_BYTES > SMALL_STORE, "two of three have more room than the third"
            for other in "bc":
                for each in keepers.running:
                    each.end(signal.SIGKILL)
                keepers.running.clear()
                small, large = start("a"), start(other)
                await asyncio.to_thread(keepers.until, lambda: keepers.serving)
                assert keepers.serving == [large]
                assert "claiming" not in small.states
            last = start("b")
            await asyncio.to_thread(keepers.until, lambda: last.state == "follower")
            # The small one says what is wrong, until it has more room.
            await writer.until(lambda: any(each["lacks_room"] for each in status_of(keepers.port).values()))
            small.end(signal.SIGINT)
            sizes["a"] = 2 * LARGE_STORE
            start("a")
            await writer.until(lambda: has_all(keepers.port))
            assert writer.tracker.confirmed(writer.ledger) >= confirmed

    for name in sizes:
        start(name)
    keepers.until(lambda: keepers.serving)
    asyncio.run(check())
