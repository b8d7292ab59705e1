"""The client of a bus's cell, which the connections of this process share.

Until a keeper is heard, it is a search that ends soon, and one handler of a kind of command: nothing more is loaded,
and messages pass no gate once the search has found no sign of keepers.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, ref

from fjm2.messages.destination import Topic

from .cell_search import CellSearch, Search

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus
    from fjm2.bus.signals.signals import CommandHandler

    from .cell_driver import CellDriver, StoringConnection

_READY_MAX_S: Final = 1.0
"""Longest time for which `ready` waits until the cell's table is known."""
_POLL_S: Final = 0.01
"""Interval at which `ready` looks."""

_clients: "WeakKeyDictionary[Bus, ref[CellClient]]" = WeakKeyDictionary()


class CellClient:
    """Hears the keepers of one bus for its connections."""

    def __init__(self, bus: "Bus") -> None:
        """Use `of` instead."""
        self._bus = bus
        bus.lanes.let_pass()  # the driver lets keepers hear each lane that gets a number
        self._connections: list[StoringConnection] = []
        self._search: CellSearch | None = None
        """Search for a cell; None when one was heard, and while there are no connections."""
        self._driver: CellDriver | None = None
        """Everything that deals with a cell; None before the first sign of one."""

    @classmethod
    def of(cls, bus: "Bus") -> "CellClient":
        """Return the client of a bus."""
        found = _clients.get(bus)
        client = None if found is None else found()
        if client is None:
            client = cls(bus)
            _clients[bus] = ref(client)
        return client

    def join(self, connection: "StoringConnection") -> None:
        """Have the messages of a connection stored, from now on or as soon as a cell is heard."""
        if not self._connections:
            self._hear_heartbeats(self._hear_first)
            self._search = CellSearch(self._bus, self._tell_expectation)
        self._connections.append(connection)
        if self._driver is not None:
            self._driver.join(connection)
        self._tell_expectation()

    def leave(self, connection: "StoringConnection") -> None:
        """Let the messages of a closed connection fail that are not stored. Calling this twice does no harm."""
        if connection not in self._connections:
            return
        self._connections.remove(connection)
        if self._driver is not None:
            self._driver.leave(connection)
        if not self._connections:
            self._hear_heartbeats(None)
            self._end_search()
            if self._driver is not None:
                self._driver.close()
                self._driver = None

    @property
    def driver(self) -> "CellDriver | None":
        """Everything that deals with a cell; None if none was heard."""
        return None if self._driver is None or not self._driver.is_heard else self._driver

    def keepers_of(self, topic: Topic) -> int:
        """Return the number of keepers that are heard, if they are known to store what is sent to a topic. Otherwise
        return 0."""
        return 0 if self._driver is None else self._driver.keepers_of(topic)

    async def heard(self, timeout_s: float) -> "CellDriver | None":
        """Wait for a cell, and return its driver. Return None if there is no sign of one, or none serves for a time."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while self.driver is None and self._is_searching(until - loop.time()):  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return self.driver

    def _is_searching(self, left_s: float) -> bool:
        """Return True if a cell may still be heard. With no time left, none is expected any more."""
        if self._search is None or self._search.state is Search.ABSENT:
            return False
        return self._search.state is Search.LISTENING or left_s > 0

    async def ready(self) -> None:
        """Wait until it is known which topics the cell stores, if a cell was heard. Wait a second at most."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _READY_MAX_S
        while self._driver is not None and self._driver.lacks_table and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)

    async def known(self, timeout_s: float, has_ended: Callable[[], bool]) -> bool:
        """Wait until a cell is heard, and it is known which topics it stores, or until `has_ended` returns True. Return
        False if there is no cell after `timeout_s` seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while not (self._knows_cell or has_ended()) and loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(_POLL_S)
        return self._knows_cell

    @property
    def _knows_cell(self) -> bool:
        return self._driver is not None and self._driver.is_heard and not self._driver.lacks_table

    def _hear_heartbeats(self, handler: "CommandHandler | None") -> None:
        from fjm2.bus.signals.signals import HEARTBEAT  # only now: it loads the NORM engine

        self._bus.lanes.signals.hear_commands(HEARTBEAT, handler)

    def _hear_first(self, node_id: int, content: bytes) -> None:
        """Begin to deal with a cell."""
        from .cell_driver import CellDriver  # only now: programs without a cell do not need it

        self._hear_heartbeats(None)
        self._driver = CellDriver(self._bus)
        for connection in self._connections:
            self._driver.join(connection)
        self._hear_heartbeats(self._hear_command)
        self._hear_command(node_id, content)

    def _hear_command(self, node_id: int, content: bytes) -> None:
        if self._driver is not None:
            self._driver.hear_command(node_id, content)
            if self._search is not None and self._driver.is_heard:
                self._end_search()

    def _end_search(self) -> None:
        if self._search is not None:
            self._search.end()
            self._search = None

    def _tell_expectation(self) -> None:
        """Tell the connections what to do with messages as long as no cell is heard."""
        search = self._search
        if search is None:
            return
        search.lingers_s = max((each.confirm_timeout_s for each in self._connections), default=0.0)
        for connection in self._connections:
            if search.state is Search.ABSENT:
                connection.expect_none()
            elif search.state is Search.EXPECTED:
                connection.expect_cell()
