"""Send texts as NORM objects, and wait until receivers have repaired their losses.

Start `norm_receive.py` first, in another terminal:

    python examples/norm_send_objects.py one two "and three"
"""

import click

import fjm2
from fjm2.norm import SenderConfig, Session


@click.command()
@click.argument("texts", nargs=-1, required=True)
@click.option("--group", default="239.192.57.40", show_default=True, help="Multicast group.")
@click.option("--port", default=5741, show_default=True, help="UDP port.")
@click.option("--interface", default="127.0.0.1", show_default=True, help="Name or address of the interface.")
@click.option("--ack-from", type=int, multiple=True, help="Node id of a receiver that has to confirm; may be repeated.")
def main(texts: tuple[str, ...], group: str, port: int, interface: str, ack_from: tuple[int, ...]) -> None:
    """Send each of TEXTS as one object."""
    try:
        fjm2.run(
            send(texts, Session(group, port, interface=interface, sender=SenderConfig(), is_sender_only=True), ack_from)
        )
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def send(texts: tuple[str, ...], session: Session, ack_from: tuple[int, ...]) -> None:
    async with session:
        for text in texts:
            object_id = await session.send_data(text.encode(), info=b"text/plain")
            print(f"object {object_id}: {text}")
        if ack_from:
            outcome = await session.watermark(ack_from)
            print(f"confirmed by {sorted(outcome.acked)}, not by {sorted(outcome.failed)}")
        else:
            await session.flushed()
            print("sent; no receiver asks for more")


if __name__ == "__main__":
    main()
