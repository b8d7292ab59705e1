"""FJM2 at work on this host: one node sends an object and a stream, three others receive them by multicast.

Everything stays on the loopback interface.
"""

import argparse
import asyncio
import hashlib
import os
import time

from fjm2.norm import SenderConfig, Session, events

GROUP, PORT, INTERFACE = "239.192.57.40", 5740, "127.0.0.1"


async def receive(name: str, is_ready: asyncio.Event) -> tuple[str, str, int]:
    """Take one object and one stream; the object's digest and the stream's messages are the result."""
    digest, messages = "", 0
    async with Session(GROUP, PORT, interface=INTERFACE, ttl=0) as session:
        is_ready.set()
        async for event in session:
            match event:
                case events.ObjectCompleted(data=memoryview() as data):
                    digest = hashlib.sha256(data).hexdigest()
                case events.StreamReceived(data=data):
                    messages += data.count(b"\n")
                case events.StreamEnded():
                    break
                case events.ObjectLost() | events.StreamLost():
                    print(f"{name}: {event}")
    return name, digest, messages


async def main(megabytes: int, count: int) -> None:
    ready = [asyncio.Event() for _ in range(3)]
    receivers = [asyncio.create_task(receive(f"receiver {n + 1}", is_ready)) for n, is_ready in enumerate(ready)]
    await asyncio.gather(*(is_ready.wait() for is_ready in ready))
    content = os.urandom(megabytes << 20)
    config = SenderConfig(rate_bps=1e9)
    async with Session(GROUP, PORT, interface=INTERFACE, ttl=0, sender=config, is_sender_only=True) as session:
        print(f"node {session.node_id} sends {megabytes} MiB and {count} messages to {GROUP}:{PORT}")
        start = time.perf_counter()
        await session.send_data(content)
        async with await session.open_stream() as stream:
            for number in range(count):
                await stream.write(b"message %d\n" % number)
        await session.flushed()
        results = await asyncio.gather(*receivers)
        elapsed = time.perf_counter() - start
        repairs, nacks = session.stats.repair_segments_sent, session.stats.nacks_received
    for name, digest, messages in results:
        is_same = digest == hashlib.sha256(content).hexdigest()
        print(f"{name}: {'identical' if is_same else 'DIFFERENT'} object, {messages} messages")
    print(f"{elapsed:.2f} s, {repairs} segments repaired after {nacks} NACKs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=20, help="size of the object (default: %(default)s)")
    parser.add_argument("--count", type=int, default=100_000, help="messages in the stream (default: %(default)s)")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.megabytes, arguments.count))
