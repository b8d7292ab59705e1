"""`fjm2 keep status`: shows the keepers of a bus."""

import asyncio
import json
import logging
import sys

import click
from rich.console import Console

from fjm2.base.quantities import counted, one_line
from fjm2.base.tables import Column, Row, print_table
from fjm2.bus.config import BusConfig
from fjm2.cell.outgoing import State
from fjm2.keeper.status import KeeperStatus, StatusFlag
from fjm2.keeper.survey import ask_keepers, is_manager, lag_of, serves

from .support.bus_link import say
from .support.common import Duration, run
from .support.live_view import quantity, uri_option

_NOT_SERVING = 1
_SHORTEST_S = 0.1
"""Shortest time in which keepers answer."""
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
@click.option(
    "--wait",
    "wait_s",
    default="0s",
    type=Duration(0.0, 3600),
    help="Ask again until a keeper serves, for so long.  [default: ask once]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def status(uri: str, duration_s: float, wait_s: float, as_json: bool) -> None:
    """Show the keepers of a bus: the manager, how far the others are behind, and what their stores take.

    LAG counts messages that another keeper has on disk. The exit code is 1 if no keeper serves. A new cell serves some
    six seconds after the last of its keepers has started: --wait waits for it.

    \b
    Example: fjm2 keep status
             fjm2 keep status --wait 30s
             fjm2 keep status --json | jq '.keepers[] | {state, host, lag}'
    """
    run(_status(uri, duration_s, wait_s, as_json))


async def _status(uri: str, duration_s: float, wait_s: float, as_json: bool) -> int:
    logging.getLogger("fjm2.norm").setLevel(logging.ERROR)
    found = await _ask_until_served(BusConfig.from_uri(uri), duration_s, wait_s)
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
    is_served = any(map(serves, found))
    if not found:
        say(f"no keeper answered within {max(duration_s, wait_s):g} s; start one: fjm2 keep DIRECTORY")
    elif not is_served:
        say(_why_none_serves(found))
    if conflicts:
        say("two cells are on this bus: the smaller one serves nothing")
    return 0 if is_served else _NOT_SERVING


async def _ask_until_served(config: BusConfig, duration_s: float, wait_s: float) -> list[KeeperStatus]:
    """Ask the keepers of a bus, and again until one serves or the time is over."""
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + wait_s
    found = await ask_keepers(config, duration_s)
    while not any(map(serves, found)) and loop.time() < ends_at:
        found = await ask_keepers(config, min(duration_s, max(ends_at - loop.time(), _SHORTEST_S)))
    return found


def _why_none_serves(found: list[KeeperStatus]) -> str:
    """Return why no keeper serves, and what to do about it."""
    if all(each.state is State.EMPTY for each in found):
        return (
            f"no keeper serves yet: {counted(len(found), 'keeper')} without a cell. A new cell is founded when as many "
            "are there as --replicas says, and serves about 6 s later: fjm2 keep status --wait 30s"
        )
    cramped = [each for each in found if each.flags & StatusFlag.LACKS_ROOM]
    if cramped:
        names = ", ".join(each.keeper_id.hex()[:8] for each in cramped)
        return (
            f"no keeper serves: the store of {names} has no room for what other keepers have on disk; if that stays "
            "so, start it again with more --store-bytes, or start all other keepers"
        )
    if any(map(is_manager, found)):
        return "no keeper serves yet: one was elected just now, and serves in about a second"
    return (
        "no keeper serves: if a majority of the cell is there, one is elected within about 2 s; otherwise start its "
        "other keepers"
    )


def _row(each: KeeperStatus, found: list[KeeperStatus]) -> Row:
    note = ", too full" if each.flags & StatusFlag.LACKS_ROOM else ", full" if each.flags & StatusFlag.FULL else ""
    state = each.state.name.lower() + note
    sizes = (f"{quantity(size)}B" for size in (each.store_bytes, each.allowed_bytes, each.live_bytes))
    place = f"{one_line(each.host)} pid {each.pid}"
    numbers = (f"{each.epoch}", f"{each.committed:,}", f"{lag_of(each, found):,}")
    return Row((each.keeper_id.hex()[:8], state, *numbers, *sizes, place))
