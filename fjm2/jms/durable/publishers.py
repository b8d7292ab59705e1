"""The wait until publishers know of a new subscription, so that nothing falls between."""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fjm2.base.logs import Log
from fjm2.base.quantities import counted, node_text
from fjm2.bus.losses.names import listed

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

log = Log("fjm2.jms")

_WAIT_S: Final = 15.0
"""Longest wait: an announcement of a publisher that is gone has expired by then."""
_WARN_AFTER_S: Final = 2.0
_LOOK_S: Final = 0.01


async def wait_for_publishers(bus: "Bus", subject: str, table_version: int) -> None:
    """Wait until all known publishers go by a table of subscriptions, or a newer one, and warn if that takes long.

    Until then they may send messages to a topic without waiting for keepers, as if nobody wanted these kept.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    is_told = False
    while True:
        unaware = bus.presence.publishers_before(table_version)
        is_own = bus.membership.announcer.table_version < table_version
        waited_s = loop.time() - began
        if (not unaware and not is_own) or waited_s >= _WAIT_S:
            return
        if unaware and waited_s >= _WARN_AFTER_S and not is_told:
            is_told = True
            names = listed([ascii(peer.client_id or f"node {node_text(peer.node_id)}")[1:-1] for peer in unaware])
            log.tell(
                logging.WARNING,
                "publishers_unaware",
                f"{subject}: waiting for {counted(len(unaware), 'publisher')} to learn of it, {_WAIT_S:g} s at most: "
                f"{names}",
            )
        await asyncio.sleep(_LOOK_S)
