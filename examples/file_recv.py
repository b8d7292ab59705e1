"""Receive the files of a group into a directory: python examples/file_recv.py inbox --count 2"""

import asyncio
import os
import tempfile

import click
from rich.progress import Progress

import fjm2
from fjm2.norm import ReceiverConfig, Session
from fjm2.norm.events import ObjectCompleted, ObjectLost, SenderVanished


@click.command()
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--group", default="239.192.57.40", show_default=True, help="Multicast group.")
@click.option("--port", default=5743, show_default=True, help="UDP port.")
@click.option("--interface", default="127.0.0.1", show_default=True, help="Name or address of the interface.")
@click.option("--count", type=int, help="Exit after this many files and the sender's end.  [default: at Ctrl-C]")
def main(directory: str, group: str, port: int, interface: str, count: int | None) -> None:
    """Receive files into DIRECTORY."""
    os.makedirs(directory, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=directory, prefix=".incomplete-") as parts:  # on the same disk
            session = Session(group, port, interface=interface, receiver=ReceiverConfig(file_directory=parts))
            fjm2.run(receive(session, directory, count))
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells have it


async def receive(session: Session, directory: str, count: int | None) -> None:
    received, _showing = 0, asyncio.create_task(show_progress(session))  # it ends with the program
    async with session:
        print(f"listening as {session.node_id:08x}", flush=True)
        async for event in session:
            match event:
                case ObjectCompleted(info=bytes() as info, path=str() as path, size=size):  # the name is not ours
                    name = os.path.basename(os.fsdecode(info).partition("\0")[0]).lstrip(".") or f"{event.object_id}"
                    os.replace(path, os.path.join(directory, name))
                    print(f"{name}: {size} bytes", flush=True)
                    received += 1
                case ObjectLost(object_id=object_id, reason=reason):
                    print(f"object {object_id} was lost: {reason.value}", flush=True)
                case SenderVanished() if count is not None and received >= count:
                    break  # not earlier: the sender still asks for confirmations


async def show_progress(session: Session) -> None:
    with Progress(transient=True, disable=not os.isatty(1)) as progress:
        task = progress.add_task("receiving", total=None)
        while True:
            for coming in session.incoming[:1]:  # usually there is only one
                progress.update(task, total=coming.size, completed=coming.bytes_received)
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
