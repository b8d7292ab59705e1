"""Send files to all hosts that listen, with parity against loss. Show the progress, and which hosts have the files.

Start `file_recv.py` elsewhere first: python examples/file_send.py README.md LICENSE
"""

import asyncio
from dataclasses import replace
from pathlib import Path

import click
from rich.progress import Progress

import fjm2
from fjm2.norm import Fec, Flow, SenderConfig, Session


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--group", default="239.192.57.40", show_default=True, help="Multicast group.")
@click.option("--port", default=5743, show_default=True, help="UDP port.")
@click.option("--interface", default="127.0.0.1", show_default=True, help="Name or address of the interface.")
@click.option("--rate", default=100e6, show_default=True, help="Bits per second.")
def main(files: tuple[Path, ...], group: str, port: int, interface: str, rate: float) -> None:
    """Send FILES to the group, each with its name."""
    # Up to 16 parity segments are made if receivers ask. `Flow.MIN`: at most a window ahead of the slowest receiver.
    parity = SenderConfig(fec=Fec.RS, block_segments=64, parity_segments=16, auto_parity=1)
    config = replace(parity, rate_bps=rate, flow=Flow.MIN, window_bytes=1 << 20)
    try:
        fjm2.run(send(files, Session(group, port, interface=interface, sender=config, is_sender_only=True)))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def send(files: tuple[Path, ...], session: Session) -> None:
    async with session:
        for path in files:
            await session.send_file(path)  # read while it is sent, so it may be larger than memory
        await show_progress(session, sum(path.stat().st_size for path in files))
        outcome = await session.watermark()  # of all hosts that answered, including those that no longer do
        stats = session.stats
        print(f"{stats.bytes_sent} bytes sent, {stats.parity_segments_sent} parity segments among them")
        for fate, nodes in (("got it all", outcome.acked), ("did not answer", outcome.failed)):
            hosts = "1 host" if len(nodes) == 1 else f"{len(nodes)} hosts"
            print(f"{hosts} {fate}: {', '.join(f'{node:08x}' for node in sorted(nodes))}")


async def show_progress(session: Session, total: int) -> None:
    with Progress() as progress:
        task = progress.add_task("sending", total=total)
        async with asyncio.TaskGroup() as tasks:  # ends the task before the session, also at Ctrl-C
            flushed = tasks.create_task(session.flushed())
            while not flushed.done():
                to = f"to {len(session.receivers)} hosts"
                progress.update(task, completed=session.stats.payload_bytes_sent, description=to)
                await asyncio.wait([flushed], timeout=0.1)


if __name__ == "__main__":
    main()
