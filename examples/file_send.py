"""Sends files to a group, with parity against loss.

Start `file_recv.py` first, in another terminal:

    python examples/file_send.py README.md LICENSE
"""

import asyncio
from pathlib import Path

import click

from fjm2.norm import Fec, SenderConfig, Session

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--group", default="239.192.57.40", show_default=True, help="Multicast group.")
@click.option("--port", default=5743, show_default=True, help="UDP port.")
@click.option("--interface", default="127.0.0.1", show_default=True, help="Name or address of the interface.")
@click.option("--rate", default=100e6, show_default=True, help="Bits per second.")
def main(files: tuple[Path, ...], group: str, port: int, interface: str, rate: float) -> None:
    """Send FILES under their names."""
    # One parity segment a block goes out unasked; up to 16 are made when receivers ask for them.
    config = SenderConfig(fec=Fec.RS, block_segments=64, parity_segments=16, auto_parity=1, rate_bps=rate)
    asyncio.run(send(files, Session(group, port, interface=interface, sender=config, is_sender_only=True)))


async def send(files: tuple[Path, ...], session: Session) -> None:
    async with session:
        for path in files:
            await session.send_file(path)  # read while it is sent, so it may be larger than memory
        await session.flushed()
        stats = session.stats
        print(f"{stats.bytes_sent} bytes sent, {stats.parity_segments_sent} parity segments among them")


if __name__ == "__main__":
    main()
