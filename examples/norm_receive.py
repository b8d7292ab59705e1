"""Receive NORM objects, and print them with all other events.

python examples/norm_receive.py --count 3
"""

import asyncio

import click

import fjm2
from fjm2.norm import ReceiverConfig, Session
from fjm2.norm.events import ObjectCompleted, ObjectLost, ObjectsMissed


@click.command()
@click.option("--group", default="239.192.57.40", show_default=True, help="Multicast group.")
@click.option("--port", default=5741, show_default=True, help="UDP port.")
@click.option("--interface", default="127.0.0.1", show_default=True, help="Name or address of the interface.")
@click.option("--node-id", type=int, help="NORM node id of this process.  [default: random]")
@click.option("--count", type=int, help="Exit after this many objects.  [default: run until Ctrl-C]")
def main(group: str, port: int, interface: str, node_id: int | None, count: int | None) -> None:
    """Print the objects of a group."""
    config = ReceiverConfig(object_bytes_max=1 << 20)
    try:
        fjm2.run(receive(Session(group, port, interface=interface, node_id=node_id, receiver=config), count))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def receive(session: Session, count: int | None) -> None:
    received = 0
    async with session:
        print(f"listening as node {session.node_id}", flush=True)
        async for event in session:
            match event:
                case ObjectCompleted(sender_id, object_id, info=info, data=memoryview() as data):
                    print(f"object {object_id} of node {sender_id}, info {info!r}: {bytes(data[:60])!r}", flush=True)
                    received += 1
                case ObjectLost(sender_id, object_id, reason=reason):
                    print(f"object {object_id} of node {sender_id} was lost: {reason.value}", flush=True)
                case ObjectsMissed(sender_id, first_object_id, number):
                    print(
                        f"{number} objects of node {sender_id} from {first_object_id} on were missed",
                        flush=True,
                    )
                case _:
                    print(f"({event})", flush=True)
            if received == count:
                await asyncio.sleep(0.2)  # time to send pending answers
                break


if __name__ == "__main__":
    main()
