"""A connection's part in last values: its consumers that wait for some, and its sends that keepers have room for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from fjm2.bus.inbox import ConsumerSettings, Inbox
from fjm2.messages.destination import Destination
from fjm2.messages.selector import Selector

from .catch_up import CatchUp, ValuesOwner
from .hub import ValuesHub
from .inbox import LastValuesInbox


class ValuesClient:
    """The consumers of one connection that get last values."""

    def __init__(self, owner: ValuesOwner) -> None:
        self.hub: Final = ValuesHub.of(owner.bus)
        self._owner = owner
        self._tasks: set[asyncio.Task[None]] = set()
        self.hub.join()

    def subscribe(
        self,
        destination: Destination,
        selector: Selector | None,
        no_local: bool,
        settings: ConsumerSettings,
        session: int,
    ) -> LastValuesInbox:
        """Subscribe to a destination, and get its last values. Return the inbox that gets all."""
        subscriptions = self._owner.subscriptions
        inbox = subscriptions.add(destination, selector, no_local, settings, session, LastValuesInbox)
        inbox.on_runs = None
        task = asyncio.ensure_future(CatchUp(self._owner, self.hub, inbox).run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        inbox.on_close = task.cancel
        return inbox

    def ready_of(self, inbox: Inbox) -> Callable[[], Awaitable[None]]:
        """Return the function that waits until a consumer is ready."""
        return inbox.caught_up if isinstance(inbox, LastValuesInbox) else self._owner.ready

    async def close(self) -> None:
        """End everything."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.hub.leave()
