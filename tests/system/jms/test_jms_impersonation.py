"""A bus on real sockets, with somebody who sends false messages in a publisher's name."""

import asyncio
import os

import pytest
from buses import GROUP, node, on, run_on, soon, uri
from forging import Forger

from fjm2.bus.reports import BytesLost, Impersonation, SenderLost, StreamsMissed
from fjm2.jms import BusError, ConnectionFactory, TextMessage, Topic

pytestmark = pytest.mark.calm

PRICES = Topic("prices")


@pytest.mark.parametrize("name", ["data far ahead", "object far ahead", "restart", "goodbye", "squelch"])
@pytest.mark.parametrize("is_spoofed", [False, True], ids=["other address", "own address"])
def test_a_false_datagram_silences_nobody_in_secret(name: str, is_spoofed: bool, port: int) -> None:
    if is_spoofed and os.geteuid():
        pytest.skip("a raw socket needs root")

    async def attack() -> None:
        with Forger(GROUP, port) as forger:
            async with node(port) as publisher, node(port) as subscriber:
                inbox = subscriber.subscribe()
                await subscriber.bus.ready()
                await publisher.bus.ready()
                for number in range(400):
                    await publisher.publish(f"{number:0500}")
                    await asyncio.sleep(0.0005)
                    forger.listen()
                    if number == 200:
                        data = forger.forgeries(publisher.bus.node_id)[name]
                        forger.send(data, publisher.bus.lanes.session.address if is_spoofed else None)
                assert await inbox.until(400) == [f"{number:0500}" for number in range(400)]
                assert not subscriber.all(BytesLost) + subscriber.all(StreamsMissed) + subscriber.all(SenderLost)
                if not is_spoofed:
                    await soon(lambda: subscriber.all(Impersonation))
                    (report,) = subscriber.all(Impersonation)
                    assert (report.sender_id, report.address) == (publisher.bus.node_id, forger.address)
                    assert str(forger.address[1]) in str(report)

    run_on("asyncio", attack())


@on("asyncio")
async def test_a_publisher_is_told_of_messages_dropped_after_they_were_confirmed(port: int) -> None:
    """A consumer that drops what it has no room for has confirmed it before."""
    errors: list[Exception] = []
    one, other = (
        ConnectionFactory(uri(port, inactivity_s=number), client_id=f"client {number}") for number in (50, 51)
    )
    async with one.create_connection() as publishing, other.create_connection() as subscribing:
        publishing.exception_listener = errors.append
        subscribing.exception_listener = lambda _: None
        session = subscribing.create_session()
        consumer = session.create_consumer(PRICES, overflow="drop_newest", messages_max=5)
        subscribing.start()
        await consumer.ready()
        producer = publishing.create_session().create_producer(PRICES)
        await publishing.ready()
        for number in range(20):
            await producer.send(TextMessage(str(number)))
        await soon(lambda: any(isinstance(error, BusError) for error in errors), lambda: errors)
        (error,) = [error for error in errors if isinstance(error, BusError)]
        assert error.error_code == "lost_after_confirmation"
        assert str(error).startswith("'client 51' at 127.0.0.1")
        assert "lost 15 messages" in str(error)
