"""`fjm2 norm recv`: receives NORM objects and streams into files."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal

import click

from fjm2.base.quantities import counted
from fjm2.norm import ReceiverConfig, Session, Sync
from fjm2.norm.events import (
    Event,
    InterfaceLost,
    InterfaceRestored,
    NodeIdCollided,
    ObjectCompleted,
    ObjectLost,
    SenderVanished,
    SendsRefused,
    StreamEnded,
    StreamLost,
    StreamOpened,
    StreamReceived,
)

from .support.common import Duration, check_peer, is_quiet, refused_text, run, session_options

LINGER_S = 1.0
"""Seconds for which the receiver still answers after the last object, so that the sender gets its confirmations and can
finish."""


@click.command()
@session_options
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Directory for received files."
)
@click.option("--unicast-nack", is_flag=True, help="Send NACKs to the sender only, not to the group.")
@click.option(
    "--sync",
    default=Sync.STREAM.value,
    show_default=True,
    type=click.Choice([sync.value for sync in Sync if sync is not Sync.KEPT]),
    help="Where to begin: the current object, the beginning of its stream, or all that the sender still holds.",
)
@click.option("--count", type=click.IntRange(min=1), help="End after this many objects.  [default: at Ctrl-C]")
@click.option("--timeout", type=Duration(is_low_open=True), help="End after this time in any case.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines: one when ready, one at the end.")
def recv(
    group: str,
    port: int,
    interface: str | None,
    node_id: int | None,
    ttl: int,
    out: Path,
    unicast_nack: bool,
    sync: str,
    count: int | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Receive objects and streams of a group into files.

    DATA objects are written as OUT/<transport id>, FILE objects under their own name, both when they are complete;
    streams as OUT/stream-<transport id> while they are read. The exit code is 0 if --count objects arrived.

    \b
    Example: fjm2 norm recv --group 239.192.57.40 --port 5741 --out inbox --count 1
    """

    check_peer(group, port, interface)

    def open_session(parts: str) -> Session:
        config = ReceiverConfig(unicast_nack=unicast_nack, sync=Sync(sync), file_directory=parts)
        return Session(group, port, interface=interface, node_id=node_id, ttl=ttl, receiver=config)

    run(_recv(open_session, out, count, timeout, as_json))


@contextmanager
def _parts_directory(out: Path) -> Iterator[str]:
    """Create a directory for incomplete files inside `out`, and delete it at the end."""
    out.mkdir(parents=True, exist_ok=True)
    directory = tempfile.mkdtemp(prefix=".incomplete-", dir=out)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _recv(
    open_session: Callable[[str], Session], out: Path, count: int | None, timeout_s: float | None, as_json: bool
) -> int:
    with _parts_directory(out) as parts:
        output = OutputDirectory(out)
        async with open_session(parts) as session:
            if as_json:
                click.echo(json.dumps({"role": "recv", "ready": True, "node_id": session.node_id}))
            else:
                click.echo(f"listening as node {session.node_id}", err=True)
            try:
                with _progress(session, output, is_quiet(as_json)):
                    async with asyncio.timeout(timeout_s):
                        await _fill(session, output, count)
            except TimeoutError:
                pass
            finally:
                output.close()
                is_ok = count is None or output.objects >= count
                if as_json:
                    result = {"role": "recv", "ok": is_ok, "objects": output.objects, "bytes": output.bytes}
                    click.echo(json.dumps(result | {"messages": output.messages} | session.stats.as_dict()))
    return 0 if is_ok else 1


async def _fill(session: Session, output: "OutputDirectory", count: int | None) -> None:
    """Handle events until `count` objects have arrived, and for LINGER_S after that."""
    linger: asyncio.TimerHandle | None = None
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    is_over = False

    def end() -> None:
        nonlocal is_over
        is_over = True
        task.cancel()

    try:
        async for event in session:
            if linger is None:
                output.handle(event)
            if count is not None and output.objects >= count and linger is None:
                linger = loop.call_later(LINGER_S, end)
    except asyncio.CancelledError:
        if not is_over or task.uncancel():
            raise
    finally:
        if linger is not None:
            linger.cancel()


@dataclass(slots=True)
class _Stream:
    file: BinaryIO
    is_aligned: bool
    """True if the file ends at the end of a message. Otherwise data is skipped up to the beginning of the next
    message."""


@dataclass(slots=True)
class OutputDirectory:
    """The directory that objects and streams are written to."""

    directory: Path
    objects: int = 0
    bytes: int = 0
    messages: int = 0
    _streams: dict[tuple[int, int], _Stream] = field(default_factory=dict)
    _ends: dict[tuple[int, int], int] = field(default_factory=dict)
    """Offset after the last byte received of each stream, also of those that are not open."""

    def handle(self, event: Event) -> None:
        """Handle an event: store what arrived, and print what went wrong."""
        match event:
            case ObjectCompleted():
                self._store(event)
            case StreamOpened():
                self._open(event)
            case StreamReceived():
                self._append(event)
            case StreamLost():
                stream = self._streams.get((event.sender_id, event.object_id))
                if stream is not None:  # else it never began
                    stream.is_aligned = False
                lost = f"bytes {event.start} to {event.end}" if event.end > event.start else "the rest"
                _say(f"lost {lost} of stream {event.object_id} of node {event.sender_id}: {event.reason.value}")
            case StreamEnded():
                self._streams.pop((event.sender_id, event.object_id)).file.close()
                self.objects += 1
            case ObjectLost():
                _say(f"lost object {event.object_id} of node {event.sender_id}: {event.reason.value}")
            case SenderVanished():
                for key in [key for key in self._streams if key[0] == event.sender_id]:
                    self._streams.pop(key).file.close()
            case NodeIdCollided(address):
                _say(f"warning: {address[0]} uses our node id, too")
            case InterfaceLost(name):
                _say(f"warning: interface {name} is down; waiting for it")
            case InterfaceRestored(name):
                _say(f"interface {name} is back")
            case SendsRefused(name, reason):
                _say(refused_text(name, reason))
            case _:
                pass

    def _store(self, event: ObjectCompleted) -> None:
        name = _safe_name(event.info) if event.is_file and event.info is not None else None
        target = self.directory / (name or str(event.object_id))
        if target.is_dir():
            target = self.directory / str(event.object_id)
        if event.path is not None:
            os.chmod(event.path, 0o666 & ~_umask())
            os.replace(event.path, target)
        elif event.data is not None:
            part = Path(f"{target}.part")
            part.write_bytes(event.data)
            part.replace(target)
        self.objects += 1
        self.bytes += event.size

    def _open(self, event: StreamOpened) -> None:
        """Open the file of a stream. If the stream goes on after its sender was away, its file goes on, too."""
        key = event.sender_id, event.object_id
        end = self._ends.get(key)
        mode: Literal["ab", "wb"] = "ab" if end is not None and event.start >= end else "wb"
        file = (self.directory / f"stream-{event.object_id}").open(mode)
        self._streams[key] = _Stream(file, event.start in (0, end))

    def _append(self, event: StreamReceived) -> None:
        key = event.sender_id, event.object_id
        stream, data = self._streams[key], event.data
        self._ends[key] = event.start + len(data)
        if not stream.is_aligned:
            if not event.marks:
                return
            data = data[event.marks[0] :]
            stream.is_aligned = True
        stream.file.write(data)
        stream.file.flush()
        self.bytes += len(data)
        self.messages += data.count(b"\n")

    def close(self) -> None:
        for stream in self._streams.values():
            stream.file.close()
        self._streams.clear()


def _safe_name(info: bytes) -> str | None:
    """Return the file name that a sender gave, without directories. Return None if the name is not usable."""
    name = os.path.basename(os.fsdecode(info.rstrip(b"\0")).replace("\\", "/"))
    is_usable = name not in ("", ".", "..") and "\0" not in name and len(os.fsencode(name)) <= 255
    return name if is_usable else None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _progress(session: Session, output: OutputDirectory, is_hidden: bool) -> Iterator[None]:
    """Show a progress line on the terminal, unless `is_hidden`."""
    if is_hidden:
        yield
        return
    # Only now: what is seldom shown takes a while to load.
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("waiting", total=None)

        async def update() -> None:
            while True:
                stats = session.stats
                text = f"{counted(output.objects, 'object')}, {counted(output.messages, 'message')}, "
                text += counted(stats.nacks_sent, "NACK")
                bar.update(task, description=text, completed=stats.bytes_received)
                await asyncio.sleep(0.1)

        updater = asyncio.get_running_loop().create_task(update())
        try:
            yield
        finally:
            updater.cancel()
