"""`fjm2 keep status`: shows the keepers of a bus."""

import json
import logging
import sys

import click
from rich.console import Console

from fjm2.base.quantities import one_line
from fjm2.base.tables import Column, Row, print_table
from fjm2.bus.config import BusConfig
from fjm2.keeper.status import KeeperStatus
from fjm2.keeper.survey import ask_keepers, is_manager, lag_of

from .support.bus_link import say
from .support.common import Duration, run
from .support.live_view import quantity, uri_option

_NOT_SERVING = 1
_COLUMNS = (
    Column("KEEPER", is_text=True),
    Column("STATE", is_text=True),
    Column("EPOCH", 4),
    Column("DECISIONS", 3),
    Column("LAG", 5),
    Column("DISK", 6),
    Column("ALLOWED", 1),
    Column("LIVE", 2),
    Column("HOST", is_text=True),
)


@click.command()
@uri_option
@click.option(
    "--duration", "duration_s", default="1s", show_default=True, type=Duration(0.1, 60), help="Time to listen."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(uri: str, duration_s: float, as_json: bool) -> None:
    """Show the keepers of a bus: the manager, how far the others are behind, and what their stores take.

    LAG counts messages that another keeper has on disk. The exit code is 1 if no keeper serves.

    \b
    Example: fjm2 keep status
             fjm2 keep status --json | jq '.keepers[] | {state, host, lag}'
    """
    run(_status(uri, duration_s, as_json))


async def _status(uri: str, duration_s: float, as_json: bool) -> int:
    logging.getLogger("fjm2.norm").setLevel(logging.ERROR)
    found = await ask_keepers(BusConfig.from_uri(uri), duration_s)
    manager = next((each for each in found if is_manager(each)), None)
    conflicts = len({each.cell_id for each in found if each.cell_id}) > 1
    if as_json:
        keepers = [{**each.as_dict(), "lag": lag_of(each, found)} for each in found]
        told = {"manager": None if manager is None else manager.keeper_id.hex(), "has_conflict": conflicts}
        click.echo(json.dumps({**told, "keepers": keepers}))
    elif found:
        print_table(
            Console(width=None if sys.stdout.isatty() else 160), _COLUMNS, [_row(each, found) for each in found]
        )
    if not found:
        say(f"no keeper answered within {duration_s:g} s; start one: fjm2 keep DIRECTORY")
    elif manager is None:
        say("no keeper serves: a majority of the cell has to be there")
    if conflicts:
        say("two cells are on this bus: the smaller one serves nothing")
    return 0 if manager is not None else _NOT_SERVING


def _row(each: KeeperStatus, found: list[KeeperStatus]) -> Row:
    state = each.state.name.lower() + (", full" if each.as_dict()["is_full"] else "")
    sizes = (f"{quantity(size)}B" for size in (each.store_bytes, each.allowed_bytes, each.live_bytes))
    place = f"{one_line(each.host)} pid {each.pid}"
    numbers = (f"{each.epoch}", f"{each.committed:,}", f"{lag_of(each, found):,}")
    return Row((each.keeper_id.hex()[:8], state, *numbers, *sizes, place))
