"""Asks all keepers of a bus for their status."""

import asyncio
from collections.abc import Iterable
from typing import Final

from fjm2.bus.config import BusConfig
from fjm2.cell.outgoing import State
from fjm2.norm import Session
from fjm2.norm.events import CommandReceived

from .status import STATUS_TYPE, KeeperStatus, decode_status

KEEPERS_MAX: Final = 256
"""Most keepers of which the status is kept: anybody can invent some."""
_ASKS: Final = 3
"""Number of times that the keepers are asked, because datagrams get lost."""


async def ask_keepers(config: BusConfig, duration_s: float) -> list[KeeperStatus]:
    """Return the status of each keeper that answers, the manager first."""
    session = config.session()
    session.is_counted_alone = False
    found: dict[bytes, KeeperStatus] = {}
    async with session:
        session.stop_answering()
        hearing = asyncio.ensure_future(_hear(session, found))
        try:
            for _ in range(_ASKS):
                session.request_acks(STATUS_TYPE)
                await asyncio.sleep(duration_s / _ASKS)
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)
    return sorted(found.values(), key=lambda each: (not is_manager(each), each.keeper_id))


async def _hear(session: Session, found: dict[bytes, KeeperStatus]) -> None:
    async for event in session:
        if not isinstance(event, CommandReceived):
            continue
        status = decode_status(event.content)
        if status is not None and (status.keeper_id in found or len(found) < KEEPERS_MAX):
            found[status.keeper_id] = status


def is_manager(status: KeeperStatus) -> bool:
    """Return True for the keeper that decides."""
    return status.state in (State.SERVING, State.CLAIMING, State.RECOVERING)


def serves(status: KeeperStatus) -> bool:
    """Return True for a manager that is ready."""
    return status.state is State.SERVING


def lag_of(status: KeeperStatus, all_of: Iterable[KeeperStatus]) -> int:
    """Return the number of messages that other keepers of the cell have, and this one has not on disk."""
    return max(each.messages for each in all_of if each.cell_id == status.cell_id) - status.messages
