"""The cell that serves a bus now, before anything is sent to it."""

import asyncio
from typing import Final

from fjm2.bus.config import BusConfig
from fjm2.cell.outgoing import State
from fjm2.keeper.survey import ask_keepers, serves
from fjm2.messages.errors import ResourceAllocationError

_ASK_S: Final = 0.6
"""Time for which keepers are listened to: they answer three questions at once."""
_SERVE_S: Final = 10.0
"""Longest wait for a manager that serves, if keepers are there: an election takes two seconds."""


async def check_cell(config: BusConfig, past_cell_id: int) -> None:
    """Wait until another cell than that of a store serves the bus.

    Raise ResourceAllocationError if no cell serves it, or if it is the store's own: the others of that one have
    everything that it had confirmed.
    """
    place = f"fjm2://{config.group}:{config.port}"
    ends_at = asyncio.get_running_loop().time() + _SERVE_S
    while True:
        found = await ask_keepers(config, _ASK_S)
        if any(each.cell_id == past_cell_id and each.state is not State.STRANDED for each in found):
            raise ResourceAllocationError(
                f"{place} is served by the cell {past_cell_id:016x}, which the store belongs to: expected another one. "
                "Its keepers have what it confirmed; nothing was sent",
                "same_cell",
            )
        if any(map(serves, found)):
            return
        if not found or asyncio.get_running_loop().time() >= ends_at:
            raise ResourceAllocationError(
                f"no keeper serves {place}: nothing was sent; start one: fjm2 keep DIRECTORY", "no_keeper"
            )
