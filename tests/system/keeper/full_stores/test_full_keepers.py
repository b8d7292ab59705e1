"""Keepers whose stores are full and differ, as processes: a manager is found, and nothing is lost."""

import asyncio
import json
import signal
from typing import Any

import pytest
from keepers import KeeperProcess, Keepers, run_command, uri_of, writing

pytestmark = pytest.mark.calm

BODY_BYTES = 100_000
SMALL_STORE, LARGE_STORE = 16 << 20, 24 << 20
_REFUSED_S = 3.0
"""Time without a confirmation after which the stores are full."""


def status_of(port: int) -> list[dict[str, Any]]:
    """Return what the keepers of a bus say."""
    return list(json.loads(run_command("status", "--uri", uri_of(port), "--json").stdout)["keepers"])


async def fill(port: int) -> int:
    """Send until the cell confirms nothing any more. Return the number of messages that were confirmed."""
    async with writing(port) as writer:
        for number in range(1000):
            try:
                await writer.stored(writer.send(b"%03d" % number * (BODY_BYTES // 3)), _REFUSED_S)
            except AssertionError:
                return number
    raise AssertionError("the stores do not fill up")


@pytest.mark.nightly
def test_a_keeper_with_less_room_than_the_others_lets_them_serve(cell_of_three: Keepers) -> None:
    keepers = cell_of_three
    sizes = {"a": SMALL_STORE, "b": LARGE_STORE, "c": LARGE_STORE}

    def start(name: str) -> KeeperProcess:
        return keepers.start(name, "--store-bytes", sizes[name])

    for name in sizes:
        start(name)
    keepers.until(lambda: keepers.serving)
    confirmed = asyncio.run(fill(keepers.port))
    assert confirmed * BODY_BYTES > SMALL_STORE, "two of three have more room than the third"
    for other in "bc":
        for each in keepers.running:
            each.end(signal.SIGKILL)
        keepers.running.clear()
        small, large = start("a"), start(other)
        keepers.until(lambda: keepers.serving)
        assert keepers.serving == [large]
        assert "claiming" not in small.states
    last = start("b")
    keepers.until(lambda: last.state == "follower")
    # The small one says what is wrong, until it has more room.
    keepers.until(lambda: any(each["lacks_room"] for each in status_of(keepers.port)))
    small.end(signal.SIGINT)
    sizes["a"] = 2 * LARGE_STORE
    start("a")
    keepers.until(lambda: [each["lag"] for each in status_of(keepers.port)] == [0, 0, 0])
    assert all(each["messages"] >= confirmed for each in status_of(keepers.port))
