"""`fjm2 keep bench`: measures a directory as the place of a store."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import click

from fjm2.base.interrupts import end_at_interrupts
from fjm2.keeper.bench import Measured, measure
from fjm2.store.format.identity import IDENTITY

from .support.common import Duration
from .support.keeping import Size, store_errors


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--size", default="1024", show_default=True, type=Size(1), help="Bytes of a message.")
@click.option(
    "--duration", "duration_s", default="4s", show_default=True, type=Duration(0.2, 3600), help="Time to measure."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def bench(directory: Path, size: int, duration_s: float, as_json: bool) -> None:
    """Measure DIRECTORY as the place of a store, and say what to expect of a keeper there.

    It writes up to 256 MiB into a folder of its own in DIRECTORY, and removes it. Name the parent of a store, which is
    on the same disk, rather than the store.

    \b
    Example: fjm2 keep bench /var/lib
             fjm2 keep bench . --size 16k --json | jq .commit_p99_s
    """
    if (directory / IDENTITY).exists():
        raise click.BadParameter(f"{directory} is a store: expected its parent, or another directory of its disk")
    try:
        with tempfile.TemporaryDirectory(prefix="fjm2-bench-", dir=directory) as folder, store_errors():
            found = measure(Path(folder), size, duration_s)
    except OSError as error:
        raise click.ClickException(f"{error.filename or directory}: {error.strerror or error}") from error
    end_at_interrupts()
    if as_json:
        click.echo(json.dumps(asdict(found)))
    else:
        _tell(found)


def _tell(found: Measured) -> None:
    click.echo(
        f"commit of one message: {_ms(found.commit_p50_s)} (median), {_ms(found.commit_p99_s)} (99 %), "
        f"{_ms(found.commit_max_s)} (longest) of {found.commits:,}"
    )
    click.echo(f"batches: {found.messages_per_s:,.0f} messages/s of {found.message_bytes} bytes")
    click.echo(f"         {found.bytes_per_s / 1e6:,.0f} MB/s")
    click.echo(
        f"expect: awaited sends take {_ms(found.commit_p50_s)} more than the way to the keepers and back, and one "
        f"session sends {1 / (found.commit_p50_s + 0.0005):,.0f} a second at most"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"
