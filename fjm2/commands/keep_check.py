"""`fjm2 keep check`: verifies a store."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from random import SystemRandom

import click

from fjm2.base.quantities import counted
from fjm2.cell.wire.ranges import DECISION_LANE
from fjm2.keeper.store_directory import present_config
from fjm2.store.drive.os_disk import OsDisk
from fjm2.store.inspection import check as damages_of
from fjm2.store.journal import Journal
from fjm2.store.opening import open_journal

from .support.bus_link import say
from .support.keeping import store_errors

_FOUND = 1


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--accept-loss", is_flag=True, help="Make a damaged store usable again, without what is lost: for a cell of one."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per damaged range, on one line.")
def check(directory: Path, accept_loss: bool, as_json: bool) -> None:
    """Verify the store in DIRECTORY while no keeper has it open.

    It reads everything that the store keeps, and prints a line for each damaged range. If something else in the store
    holds the same, nothing is lost: the next keeper repairs it. Nothing is changed, unless --accept-loss is given.
    Members of a cell of three need no repair: replace the directory by an empty one, and they get everything from the
    others.

    The exit code is 1 if something is lost, and otherwise that of fjm2 keep.

    \b
    Example: fjm2 keep check /var/lib/fjm2
             fjm2 keep check /var/lib/fjm2 --json | jq .file
    """
    lost = repairable = 0
    with store_errors():
        with OsDisk(directory, read_only=True) as disk:
            for damage in damages_of(disk):
                lost += damage.is_lost
                repairable += not damage.is_lost
                click.echo(json.dumps(asdict(damage)) if as_json else str(damage))
        if (lost or repairable) and accept_loss:
            with OsDisk(directory) as disk:
                journal = open_journal(disk, present_config(directory), SystemRandom(), accept_loss=True)
            accepted = (
                f"the loss is accepted: the next keeper here begins a new incarnation. Among what is left, "
                f"{counted(_missing_in(journal), 'message')} cannot be found"
            )
            say(accepted if lost else "repaired; nothing is lost")
    if not as_json:
        say(_summary(lost, repairable, directory))
    sys.exit(_FOUND if lost else 0)


def _missing_in(journal: Journal) -> int:
    """Return the number of messages that are missing before the last one of their ledgers."""
    known = [journal.known(ledger) for ledger in journal.ledgers() if ledger.lane != DECISION_LANE]
    return sum(end - first for each in known if each for first, end in each.gaps(1, each.last))


def _summary(lost: int, repairable: int, directory: Path) -> str:
    if lost:
        return f"{counted(lost + repairable, 'damaged range')} in {directory}"
    if repairable:
        return f"nothing is lost in {directory}: a keeper repairs {counted(repairable, 'damaged range')} when it starts"
    return f"nothing is damaged in {directory}"
