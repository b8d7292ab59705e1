"""`fjm2 keep export`: writes the messages of a store for other programs."""

import contextlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import click

from fjm2.base.errors import FJM2Error
from fjm2.base.missing_extras import lack_of
from fjm2.base.quantities import counted
from fjm2.bus.ledgers.destinations import REQUESTS
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.messages.frame import Frame, FrameReader
from fjm2.messages.header import DESTINATION_HASH, FILE, KIND
from fjm2.messages.message import open_message
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.inspection import ExportedMessage
from fjm2.store.inspection import export as messages_of

from .support.bus_link import say
from .support.keeping import store_errors
from .support.rendering import body_bytes, describe_error, described, json_line

_KEPT: Final = "kept"
"""State of a message that somebody may still want. Others are not in the store."""
_ROWS: Final = 10_000
"""Rows of a group in a Parquet file."""
_PARTLY: Final = 1
_TEXTS: Final = ("producer_id", "state", "destination", "message_id", "delivery_mode", "type", "correlation_id")
_MORE_TEXTS: Final = ("reply_to", "kind", "properties")


class _Rows:
    """Messages of a store as objects of JSON. Those that cannot be read are told and counted.

    Decisions of keepers, and requests of clients to them, are no messages.
    """

    def __init__(self) -> None:
        self.messages = 0
        self.unreadable = 0

    def of(self, found: Iterable[ExportedMessage]) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield each message, and its body as bytes."""
        for one in found:
            if one.ledger.lane == DECISION_LANE:
                continue
            frames = FrameReader().feed(one.frame, (0,))
            if len(frames) == 1 and frames[0][-1][DESTINATION_HASH] == REQUESTS.frame_hash:
                continue
            row = self._row(one, frames)
            if row is None:
                self.unreadable += 1
            else:
                self.messages += 1
                yield row

    def _row(self, one: ExportedMessage, frames: list[Frame]) -> tuple[dict[str, Any], bytes] | None:
        place = f"sequence {one.sequence} of {one.ledger}"
        if len(frames) != 1:
            say(f"{place} cannot be read: it is no frame")
            return None
        _, start, body, end, header = frames[0]
        if header[KIND] == FILE:
            say(f"{place} cannot be read: it belongs to a file, and keepers do not keep files")
            return None
        message = open_message(one.frame[start:body], one.frame[body:end], header)
        try:
            told = described(message)
            content = body_bytes(message)
        except FJM2Error as error:
            say(f"{place}: {describe_error(error, message)}")
            return None
        producer_id, epoch, lane = one.ledger
        name = {"producer_id": f"{producer_id:016x}", "producer_epoch": epoch, "lane": lane, "sequence": one.sequence}
        return {**name, "state": _KEPT, **told}, content

    @property
    def summary(self) -> dict[str, int]:
        return {"messages": self.messages, "unreadable": self.unreadable}


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(("jsonl", "parquet")),
    default="jsonl",
    show_default=True,
    help="JSON lines, or Parquet for Spark and DuckDB.",
)
@click.option(
    "--to", "target", type=click.Path(dir_okay=False, path_type=Path), help="File to write.  [default: stdout]"
)
@click.option("--accept-loss", is_flag=True, help="Leave out what is damaged.")
@click.option("--json", "as_json", is_flag=True, help="Print how much was written as a JSON object, on stderr.")
def export(directory: Path, form: str, target: Path | None, accept_loss: bool, as_json: bool) -> None:
    """Write all messages of the store in DIRECTORY while no keeper has it open.

    A message has the ledger and sequence under which it is stored, its state, and what fjm2 sub --json prints. Requests
    of programs to the keepers are left out. Nothing is changed. Parquet needs pyarrow, which the extra spark has.

    The exit code is 1 if some message cannot be read, and otherwise that of fjm2 keep.

    \b
    Example: fjm2 keep export /var/lib/fjm2 | jq -r .destination | sort | uniq -c
             fjm2 keep export /var/lib/fjm2 --format parquet --to messages.parquet
    """
    if form == "parquet" and target is None:
        raise click.UsageError("--format parquet: expected --to FILE, as Parquet cannot be written to a pipe")
    write = _parquet_writer() if form == "parquet" else _write_lines
    rows = _Rows()
    try:
        with store_errors(), OsDisk(directory, read_only=True) as disk:
            messages = messages_of(disk, accept_loss=accept_loss)
            first = list(itertools.islice(messages, 1))  # a store that cannot be read leaves an earlier file alone
            write(rows.of(itertools.chain(first, messages)), target)
    except OSError as error:
        raise click.ClickException(f"{error.filename or target or 'stdout'}: {error.strerror or error}") from error
    unreadable = f", {counted(rows.unreadable, 'message')} cannot be read" if rows.unreadable else ""
    say(json.dumps(rows.summary) if as_json else f"{counted(rows.messages, 'message')}{unreadable}")
    sys.exit(_PARTLY if rows.unreadable else 0)


def _write_lines(rows: Iterator[tuple[dict[str, Any], bytes]], target: Path | None) -> None:
    with contextlib.ExitStack() as stack:
        file = sys.stdout.buffer if target is None else stack.enter_context(target.open("wb"))
        for row, _ in rows:
            file.write(json_line(row))
        file.flush()


def _parquet_writer() -> Callable[[Iterator[tuple[dict[str, Any], bytes]], Path | None], None]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise click.ClickException(lack_of(error, "--format parquet", "spark")) from None
    text, number = pyarrow.string(), pyarrow.int64()
    schema = pyarrow.schema(
        [
            *((name, text) for name in _TEXTS + _MORE_TEXTS),
            *((name, number) for name in ("producer_epoch", "lane", "timestamp", "expiration", "priority")),
            ("sequence", pyarrow.uint64()),
            ("redelivered", pyarrow.bool_()),
            ("body", pyarrow.binary()),
        ]
    )

    def write(rows: Iterator[tuple[dict[str, Any], bytes]], target: Path | None) -> None:
        with pyarrow.parquet.ParquetWriter(target, schema) as writer:
            group: list[dict[str, Any]] = []
            for row, body in rows:
                properties = json.dumps(row["properties"])
                group.append({**{name: row.get(name) for name in schema.names}, "properties": properties, "body": body})
                if len(group) >= _ROWS:
                    writer.write_table(pyarrow.Table.from_pylist(group, schema))
                    group = []
            if group:
                writer.write_table(pyarrow.Table.from_pylist(group, schema))

    return write
