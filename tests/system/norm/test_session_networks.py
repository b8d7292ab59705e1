"""Tests of sessions between hosts: IPv6 multicast, and unicast between two sessions."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from netns import Network
from sessions import (
    listening,
    new_session,
    noise,
    soon,
)

from fjm2.norm.events import (
    ObjectCompleted,
)


def run_in(network: Network, main: Callable[[], Coroutine[Any, Any, None]], *setup: str) -> None:
    """Run a coroutine function on each kind of loop, on a separate host."""
    host = network.namespace()
    for command in setup:
        host.ip(*command.split())
    with host.entered():
        for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(main())


@pytest.mark.root
def test_ipv6_multicast(network: Network, port: int) -> None:
    async def main() -> None:
        settings = {"group": "ff15::57:95", "interface": "lo"}
        async with (
            listening(new_session(port, node_id=2, **settings)) as heard,
            new_session(port, is_sender_only=True, **settings) as sender,
        ):
            data = noise(300_000)
            await sender.send_data(data)
            assert (await soon(sender.watermark([2]))).acked == {2}
            assert (await heard.one(ObjectCompleted)).data == data

    run_in(network, main, "-6 route add local ff00::/8 dev lo table local")


@pytest.mark.root
def test_between_two_by_unicast(network: Network, port: int) -> None:
    async def main() -> None:
        ends = ("10.57.0.1", "10.57.0.2")
        async with (
            listening(new_session(port, group=ends[1], interface=ends[0], node_id=1)) as one,
            listening(new_session(port, group=ends[0], interface=ends[1], node_id=2)) as other,
        ):
            for source, target, node in ((one, other, 2), (other, one, 1)):
                data = noise(300_000, node)
                await source._session.send_data(data)
                assert (await soon(source._session.watermark([node]))).acked == {node}
                assert (await target.one(ObjectCompleted)).data == data

    run_in(network, main, "address add 10.57.0.1/32 dev lo", "address add 10.57.0.2/32 dev lo")
