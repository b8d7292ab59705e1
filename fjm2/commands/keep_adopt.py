"""`fjm2 keep adopt`: sends what a stranded or retired store holds into the present cell."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from fjm2.adoption.adopter import Adopted
from fjm2.adoption.adopter import adopt as send_all
from fjm2.adoption.past_cell import PastCell
from fjm2.adoption.progress import left_in
from fjm2.adoption.survey import Survey, TopicCount, survey_of, total_of
from fjm2.base.quantities import counted, one_line
from fjm2.base.tables import Column, Row, print_table
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.inspection import read_journal
from fjm2.store.opening import Owner

from .support.bus_link import say
from .support.common import run
from .support.keeping import store_errors
from .support.live_view import uri_option

_LEFT: Final = 1
"""Exit code if some messages could not be sent yet."""
_TELL_S: Final = 2.0
"""Interval at which progress is told."""
_COLUMNS = (
    Column("TOPIC", is_text=True),
    Column("MESSAGES", 6),
    Column("EXPIRED", 4),
    Column("LATER", 4),
    Column("SUBSCRIPTIONS", is_text=True),
)


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@uri_option
@click.option(
    "--journal",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder that remembers what was sent.  [default: DIRECTORY.adopted]",
)
@click.option("--dry-run", is_flag=True, help="Only count, and ask no keeper.")
@click.option("--accept-loss", is_flag=True, help="Leave out what is damaged.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as a JSON object.")
def adopt(directory: Path, uri: str, folder: Path | None, dry_run: bool, accept_loss: bool, as_json: bool) -> None:
    """Send messages of the store in DIRECTORY that were not acknowledged into the present cell, once.

    For the store of a cell that lost a conflict (state stranded), or that was retired, as by a program with keep= that
    moves to a cell of three. Create the durable subscriptions in the present cell first: messages to a topic without
    one stay where they are. Each message arrives with its headers, and with redelivered set.

    The store is only read. What was sent is remembered in DIRECTORY.adopted: after a kill, repeat the command, and it
    goes on. Keep both until nothing is left. Of the stores of one cell, adopt one; for another one of it, name the same
    --journal, so that nothing is sent twice.

    The exit code is 1 if something is left, or if no other cell serves the bus, and otherwise that of fjm2 keep.

    \b
    Example: fjm2 keep adopt /var/lib/old-store --dry-run
             fjm2 keep adopt /var/lib/old-store
    """
    folder = folder or directory.resolve().with_name(f"{directory.resolve().name}.adopted")
    run(_adopt(directory, folder, uri, dry_run, accept_loss, as_json))


async def _adopt(directory: Path, folder: Path, uri: str, dry_run: bool, accept_loss: bool, as_json: bool) -> int:
    with store_errors(), OsDisk(directory, read_only=True) as disk:
        is_store = partial(Owner.KEEPER.check, directory)
        journal = await asyncio.to_thread(read_journal, disk, accept_loss=accept_loss, check=is_store)
        past = await asyncio.to_thread(PastCell, journal, disk)
        survey = await asyncio.to_thread(survey_of, past, journal, disk, time.time_ns() // 1_000_000)
        waiting = await asyncio.to_thread(left_in, folder, survey)
        if dry_run or not survey.cell_id:
            _tell_survey(survey, waiting, as_json)
            return 0
        adopted = await send_all(survey, journal, disk, folder, uri, _teller(as_json))
    return _tell(survey, adopted, as_json)


def _teller(as_json: bool) -> Callable[[int, int], None]:
    """Return a function that tells the progress now and then."""
    told_at = time.monotonic()

    def tell(done: int, of: int) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= _TELL_S and not as_json:
            told_at = now
            say(f"{done:,} of {counted(of, 'message')} stored")

    return tell


def _topics(survey: Survey) -> list[dict[str, Any]]:
    return [asdict(each) for each in sorted(survey.topics.values(), key=lambda each: each.name)]


def _row(topic: TopicCount) -> Row:
    counts = (topic.messages, topic.expired, topic.later)
    return Row((one_line(topic.name), *(f"{count:,}" for count in counts), one_line(", ".join(topic.subscriptions))))


def _tell_survey(survey: Survey, waiting: int, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"cell": f"{survey.cell_id:016x}", "waiting": waiting, "topics": _topics(survey)}))
        return
    rows = [_row(survey.topics[each]) for each in sorted(survey.topics, key=lambda each: survey.topics[each].name)]
    if rows:
        print_table(Console(width=None if sys.stdout.isatty() else 160), _COLUMNS, rows)
    say(f"{counted(waiting, 'message')} to adopt, without those that were adopted before")


def _tell(survey: Survey, adopted: Adopted, as_json: bool) -> int:
    total = total_of(survey.topics)
    if as_json:
        told = {"adopted": adopted.messages, "added": adopted.added}
        unwanted = {"unwanted": adopted.unwanted, "unwanted_topics": adopted.unwanted_topics}
        more = {"expired": total["expired"], "later": total["later"], "topics": _topics(survey)}
        click.echo(json.dumps({"cell": f"{survey.cell_id:016x}", **told, **unwanted, **more}))
    else:
        say(f"{counted(adopted.messages, 'message')} adopted, {adopted.added:,} by this run")
        if adopted.unwanted:
            say(
                f"{counted(adopted.unwanted, 'message')} left: the present cell has no durable subscription to "
                f"{', '.join(adopted.unwanted_topics)}; create it, and repeat the command"
            )
        if total["later"]:
            say(f"{counted(total['later'], 'message')} left: not due yet; repeat the command then")
        if total["expired"]:
            say(f"{counted(total['expired'], 'message')} expired")
    return _LEFT if adopted.unwanted or total["later"] else 0
