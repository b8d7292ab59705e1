"""Read messages of fixed size from a NORM stream. A late subscriber starts at the beginning of a message.

python examples/norm_stream_sub.py --size 100
"""

import click

import fjm2
from fjm2.norm import ReceiverConfig, Session, Sync
from fjm2.norm.events import StreamEnded, StreamLost, StreamOpened, StreamReceived


@click.command()
@click.option("--group", default="239.192.57.40", show_default=True, help="Multicast group.")
@click.option("--port", default=5742, show_default=True, help="UDP port.")
@click.option("--interface", default="127.0.0.1", show_default=True, help="Name or address of the interface.")
@click.option("--size", default=100, show_default=True, type=click.IntRange(min=8), help="Bytes of each message.")
def main(group: str, port: int, interface: str, size: int) -> None:
    """Count the messages of one stream."""
    config = ReceiverConfig(sync=Sync.CURRENT)
    try:
        fjm2.run(subscribe(Session(group, port, interface=interface, receiver=config), size))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def subscribe(session: Session, size: int) -> None:
    buffer, is_aligned, received, newest = b"", False, 0, -1
    async with session:
        print("listening", flush=True)
        async for event in session:
            match event:
                case StreamOpened(start=start):
                    is_aligned = start == 0  # otherwise we came late, perhaps in the middle of a message
                case StreamReceived(data=data, marks=marks):
                    if not is_aligned:
                        if not marks:
                            continue
                        data, is_aligned = data[marks[0] :], True  # a mark is the beginning of a message
                    buffer += data
                    whole = len(buffer) // size * size
                    if whole:
                        received += whole // size
                        newest = int.from_bytes(buffer[whole - size : whole - size + 8])
                    buffer = buffer[whole:]
                case StreamLost(start=start, end=end, reason=reason):
                    print(f"lost bytes {start} to {end}: {reason.value}", flush=True)
                    buffer, is_aligned = b"", False
                case StreamEnded():
                    break
    print(f"{received} messages, the last is number {newest}", flush=True)


if __name__ == "__main__":
    main()
