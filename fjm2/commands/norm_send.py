"""`fjm2 norm send`: sends NORM objects and streams."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from fjm2.base.errors import ConfigError
from fjm2.norm import Fec, SenderConfig, Session
from fjm2.norm.events import FileFailed, InterfaceLost, InterfaceRestored, NodeIdCollided, SendsRefused

from .support.common import Duration, check_peer, cut_off_text, is_quiet, refused_text, run, session_options

GRTT_LEAST_S, GRTT_MOST_S = 1e-6, 10.0
"""Bounds of estimates of the round-trip time in the settings of a sender."""
_OPTIONS = {
    "segment_bytes": "--segment-size",
    "block_segments": "--block-size",
    "auto_parity": "--auto-parity",
    "parity_segments": "--parity",
    "rate_bps": "--rate",
}
"""Options by the settings that they stand for and that can be out of range."""
_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


class NodeIds(click.ParamType[tuple[int, ...]]):
    """A list of node ids, separated by commas."""

    name = "ID,..."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            ids = tuple(int(part) for part in str(value).split(","))
        except ValueError:
            ids = ()
        if not ids or not all(0 < node_id < 0xFFFFFFFF for node_id in ids):
            self.fail(f"{value!r}: expected node ids from 1 to 4294967294, separated by commas", param, ctx)
        return ids


def _of_option(error: ConfigError) -> click.BadParameter:
    """Return the error of the option that stands for a setting."""
    option, expected, context = _OPTIONS[error.setting or ""], error.expected, click.get_current_context()
    for setting, name in (*_OPTIONS.items(), ("fec=rs", "--fec rs"), ("None", "0")):
        expected = expected.replace(setting, name)
    (value,) = (context.params[one.name or ""] for one in context.command.params if option in one.opts)
    return click.BadParameter(f"{value}: expected {expected}", context, param_hint=f"'{option}'")


@click.command()
@session_options
@click.option("--segment-size", default=1400, show_default=True, help="Payload of a datagram in bytes.")
@click.option("--block-size", default=64, show_default=True, help="Source segments of a FEC block.")
@click.option("--parity", default=None, type=int, help="Parity segments of a block, with --fec rs.  [default: 8]")
@click.option("--auto-parity", default=0, show_default=True, help="Parity segments sent unasked with every block.")
@click.option(
    "--fec",
    default="none",
    show_default=True,
    type=click.Choice([fec.value for fec in Fec]),
    help="none: id 5 without parity; rs: Reed-Solomon, id 5; nocode: id 0, which libnorm refuses.",
)
@click.option("--rate", default=100e6, show_default=True, help="Bits per second; 0 for no limit.")
@click.option("--cc", is_flag=True, help="Congestion control (NORM-CC); --rate is then the upper limit.")
@click.option(
    "--grtt",
    default="10ms",
    show_default=True,
    type=Duration(GRTT_LEAST_S, GRTT_MOST_S),
    help="First estimate of the round-trip time.",
)
@click.option("--ack-from", type=NodeIds(), default=(), help="Wait for these nodes to confirm the end.")
@click.option("--data", multiple=True, type=_FILE, help="Send the bytes of a file as a DATA object (repeatable).")
@click.option("--file", "files", multiple=True, type=_FILE, help="Send a FILE object with its name (repeatable).")
@click.option("--stream", type=_FILE, help="Send the lines of a file as messages of a STREAM.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with counters at the end.")
@click.argument("more", nargs=-1, type=_FILE)
def send(
    group: str,
    port: int,
    interface: str | None,
    node_id: int | None,
    ttl: int,
    segment_size: int,
    block_size: int,
    parity: int | None,
    auto_parity: int,
    fec: str,
    rate: float,
    cc: bool,
    grtt: float,
    ack_from: tuple[int, ...],
    data: tuple[Path, ...],
    files: tuple[Path, ...],
    stream: Path | None,
    as_json: bool,
    more: tuple[Path, ...],
) -> None:
    """Send objects or a stream to a group, and end when no receiver asks for repairs any more.

    Several FILEs may follow --data or --file. The exit code is 0 when all was flushed or, with --ack-from, when all
    those nodes have confirmed the end; 1 when not, when nothing leaves this host, or when a file could not be read to
    its end.

    \b
    Example: fjm2 norm send --group 239.192.57.40 --port 5741 --file report.pdf
    """
    if sum(map(bool, (data, files, stream))) != 1:
        raise click.UsageError("expected exactly one of --data, --file and --stream")
    if more and stream:
        raise click.UsageError(f"--stream expects one file, but {more[0]} follows")
    check_peer(group, port, interface)
    if parity is None:
        parity = min(8, 255 - block_size) if fec == "rs" else 0

    try:
        config = SenderConfig(
            segment_bytes=segment_size,
            block_segments=block_size,
            fec=Fec(fec),
            parity_segments=parity,
            auto_parity=auto_parity,
            rate_bps=rate or None,
            cc=cc,
            grtt_s=grtt,
            grtt_min_s=min(grtt, 0.001),
        )
    except ConfigError as error:
        raise _of_option(error) from None

    def open_session() -> Session:
        return Session(group, port, interface=interface, node_id=node_id, ttl=ttl, sender=config, is_sender_only=True)

    run(_send(open_session, data and data + more, files and files + more, stream, ack_from, as_json))


async def _send(
    open_session: Callable[[], Session],
    data: tuple[Path, ...],
    files: tuple[Path, ...],
    stream: Path | None,
    ack_from: tuple[int, ...],
    as_json: bool,
) -> int:
    paths = [*data, *files, *([stream] if stream else [])]
    total = sum(path.stat().st_size for path in paths)
    failed: list[int] = []
    async with open_session() as session:
        began = time.monotonic()
        watcher = asyncio.create_task(_report_trouble(session, failed))
        with _progress(session, total, is_quiet(as_json)):
            for path in data:
                await session.send_data(path.read_bytes())
            for path in files:
                await session.send_file(path)
            if stream:
                await _send_lines(session, stream)
            missing = sorted((await session.watermark(ack_from)).failed) if ack_from else []
            if not ack_from:
                await session.flushed()
        took_s = time.monotonic() - began
        watcher.cancel()
        cut_off = cut_off_text(session.statistics().is_down, session.refusal)
        if ack_from and not missing:
            cut_off = None  # everything has arrived
        is_ok = not missing and not failed and cut_off is None
        if as_json:
            result = {"role": "send", "ok": is_ok, "objects": len(paths) - len(failed), "bytes": total}
            click.echo(
                json.dumps(result | {"not_acked": missing, "seconds": round(took_s, 4)} | session.stats.as_dict())
            )
    if cut_off is not None:
        click.echo(cut_off, err=True)
    if missing:
        click.echo(f"not confirmed by: {', '.join(map(str, missing))}", err=True)
    return 0 if is_ok else 1


async def _send_lines(session: Session, path: Path) -> None:
    async with await session.open_stream() as stream:
        with path.open("rb") as lines:
            for line in lines:
                await stream.write(line)


async def _report_trouble(session: Session, failed: list[int]) -> None:
    """Print events that the operator can do something about. Add the ids of files that failed to `failed`."""
    async for event in session:
        match event:
            case FileFailed(object_id, error):
                failed.append(object_id)
                click.echo(f"given up: {error}", err=True)
            case NodeIdCollided(address):
                click.echo(f"warning: {address[0]} uses our node id {session.node_id}, too", err=True)
            case InterfaceLost(name):
                click.echo(f"warning: interface {name} is down; waiting for it", err=True)
            case InterfaceRestored(name):
                click.echo(f"interface {name} is back", err=True)
            case SendsRefused(name, reason):
                click.echo(refused_text(name, reason), err=True)
            case _:
                pass


@contextmanager
def _progress(session: Session, total: int, is_hidden: bool) -> Iterator[None]:
    """Show a progress bar on the terminal, with the number of repairs."""
    if is_hidden:
        yield
        return
    # Only now: what is seldom shown takes a while to load.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[repairs]} repairs"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=False) as bar:
        task = bar.add_task("sending", total=total, repairs=0)

        async def update() -> None:
            while True:
                stats = session.stats
                sent = min(stats.bytes_sent, total)
                repairs = stats.repair_segments_sent + stats.parity_segments_sent
                bar.update(task, completed=sent, repairs=repairs)
                await asyncio.sleep(0.1)

        updater = asyncio.get_running_loop().create_task(update())
        try:
            yield
            bar.update(task, completed=total)
        finally:
            updater.cancel()
