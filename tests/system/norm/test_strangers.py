"""Sessions on the loopback among strangers: floods of invented senders, and a sender that restarts elsewhere."""

import asyncio
import socket
from collections.abc import Callable

from hostile.datagrams import Fake, fti
from sessions import DEADLINE_S, GROUP, new_session, on_each_loop, soon

from fjm2.norm.events import ObjectCompleted, SenderAppeared, SenderImpersonated, SenderVanished

STRANGERS = 20_000
PER_TURN = 40


def stranger_socket() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
    made.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
    return made


@on_each_loop
async def test_a_flood_of_new_names_leaves_room_for_those_who_stay(port: int) -> None:
    ext = fti(5, 4, 1000, 64)
    async with new_session(port) as receiving, new_session(port, is_sender_only=True) as known:
        contents = [b"%d" % number for number in range(50)]
        await known.send_data(b"first")
        received: list[bytes] = []
        senders: set[int] = set()

        async def collect() -> None:
            async for event in receiving:
                if isinstance(event, ObjectCompleted) and event.sender_id > 1 << 20:
                    received.append(bytes(event.data or b""))
                elif isinstance(event, SenderAppeared):
                    senders.add(event.sender_id)

        collecting = asyncio.create_task(collect())
        with stranger_socket() as stranger:
            for first in range(0, STRANGERS, PER_TURN):
                for number in range(first, first + PER_TURN):
                    fake = Fake(1 + number, number & 0xFFFF, ("", 0))
                    stranger.sendto(fake.data(0, 0, b"evil", fti=ext), (GROUP, port))
                await asyncio.sleep(0.001)
                if first % (10 * PER_TURN) == 0:
                    await known.send_data(contents[first // (10 * PER_TURN)])
        async with new_session(port, is_sender_only=True) as newcomer:
            async with asyncio.timeout(DEADLINE_S):
                while b"new here" not in received:  # the first one may still have been among too many
                    await newcomer.send_data(b"new here")
                    await asyncio.sleep(0.05)
        await soon(until(lambda: len(set(received)) == 52))
        collecting.cancel()
        assert set(received) == {b"first", *contents, b"new here"}
        drops = receiving.statistics().drops
        assert drops["stranger"] > STRANGERS / 2
        assert len(senders) < STRANGERS / 2


async def until(is_true: Callable[[], bool]) -> None:
    while not is_true():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@on_each_loop
async def test_a_sender_that_restarts_on_another_port_is_received_from_its_first_message(port: int) -> None:
    async with new_session(port) as receiving:
        events: list[object] = []

        async def collect() -> None:
            async for event in receiving:
                events.append(event)  # noqa: PERF401

        collecting = asyncio.create_task(collect())
        with stranger_socket() as first:
            data = Fake(7, 1, ("", 0)).data(0, 0, b"before", fti=fti(5, 6, 1000, 64))
            first.sendto(data, (GROUP, port))
            await soon(until(lambda: any(isinstance(event, ObjectCompleted) for event in events)))
        async with new_session(port, node_id=7, is_sender_only=True) as second:
            began_at = asyncio.get_running_loop().time()
            for number in range(5):
                await second.send_data(b"after %d" % number)
            await soon(until(lambda: sum(isinstance(event, ObjectCompleted) for event in events) == 6))
            assert asyncio.get_running_loop().time() - began_at < 2.0
        collecting.cancel()
        contents = [bytes(event.data or b"") for event in events if isinstance(event, ObjectCompleted)]
        assert sorted(contents) == [b"after %d" % number for number in range(5)] + [b"before"]
        assert sum(isinstance(event, SenderAppeared) for event in events) == 2
        assert not [event for event in events if isinstance(event, SenderImpersonated)]
        assert [event for event in events if isinstance(event, SenderVanished)]
