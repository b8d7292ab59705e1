"""The engine without asyncio: a socket, the engine and its events, in one loop.

The engine does no I/O and reads no clock. The loop passes it datagrams and the time. The engine returns datagrams to
send, events, and the time at which it wants to be called again. Run the program twice, the receiver first:

    python examples/bare_engine.py
    python examples/bare_engine.py --text "hello, all of you"
"""

import select
import time
from random import SystemRandom

import click

from fjm2.norm import Engine, MemorySource, SessionConfig, UdpConfig, UdpTransport
from fjm2.norm.events import Event, ObjectCompleted, TransmissionFlushed


@click.command()
@click.option("--text", help="Text to send.  [default: receive one object]")
@click.option("--port", default=5744, show_default=True, help="UDP port.")
def main(text: str | None, port: int) -> None:
    """Send or receive one NORM object over the loopback."""
    config = SessionConfig(node_id=SystemRandom().randrange(1, 1 << 31))
    with UdpTransport(UdpConfig(group="239.192.57.40", port=port, interface="127.0.0.1", ttl=0)) as transport:
        engine = Engine(config, transport.destination, random=SystemRandom())
        engine.own_address = transport.address  # to ignore our own datagrams when they are looped back
        if text is not None:
            engine.enqueue(MemorySource(text.encode()), b"a text", False, time.monotonic())
        print("running", flush=True)
        while not any(isinstance(event, ObjectCompleted | TransmissionFlushed) for event in turn(engine, transport)):
            pass
        engine.close()
        send(engine, transport)


def turn(engine: Engine, transport: UdpTransport) -> list[Event]:
    """Send what is due, wait for datagrams or the next deadline, and return the events."""
    send(engine, transport)
    wait_s = min(1.0, max(0.0, engine.poll_timeout() - time.monotonic()))
    for socket in select.select([transport.group, transport.transmit], [], [], wait_s)[0]:
        while (train := socket.receive()) is not None:
            engine.receive_train(train, time.monotonic(), by_unicast=socket is transport.transmit)
    engine.handle_timeout(time.monotonic())
    events = list(iter(engine.poll_event, None))
    for event in events:
        print(event, flush=True)
    return events


def send(engine: Engine, transport: UdpTransport) -> None:
    while (train := engine.poll_train(time.monotonic())) is not None:
        while not transport.send(train):  # the kernel's buffer is full
            select.select([], [transport.transmit], [])


if __name__ == "__main__":
    main()
