"""Publish messages on a NORM stream.

Start `norm_stream_sub.py` first, in another terminal:

    python examples/norm_stream_pub.py --messages 1000 --size 100
"""

import time

import click

import fjm2
from fjm2.norm import SenderConfig, Session


@click.command()
@click.option("--group", default="239.192.57.40", show_default=True, help="Multicast group.")
@click.option("--port", default=5742, show_default=True, help="UDP port.")
@click.option("--interface", default="127.0.0.1", show_default=True, help="Name or address of the interface.")
@click.option("--messages", default=1000, show_default=True, type=click.IntRange(min=1), help="Number of messages.")
@click.option("--size", default=100, show_default=True, type=click.IntRange(min=8), help="Bytes of each message.")
@click.option("--rate", default=100e6, show_default=True, help="Bits per second.")
def main(group: str, port: int, interface: str, messages: int, size: int, rate: float) -> None:
    """Publish numbered messages."""
    config = SenderConfig(rate_bps=rate)
    session = Session(group, port, interface=interface, sender=config, is_sender_only=True)
    try:
        fjm2.run(publish(session, messages, size))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def publish(session: Session, messages: int, size: int) -> None:
    began = time.monotonic()
    async with session:
        async with await session.open_stream(info=b"numbered messages") as stream:
            for number in range(messages):
                # Every write begins a message. Messages leave together at the end of the loop's turn, or when a train
                # is full.
                await stream.write(number.to_bytes(8) + bytes(size - 8))
        await session.flushed()
        stats = session.stats
    took_s = time.monotonic() - began
    print(f"{messages} messages in {took_s:.2f} s, {stats.datagrams_sent} datagrams, {stats.nacks_received} NACKs")


if __name__ == "__main__":
    main()
