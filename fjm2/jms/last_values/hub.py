"""Answers of the keepers of a bus about last values, passed to the consumers and senders of this process that asked."""

import asyncio
import contextlib
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakKeyDictionary, ref

from fjm2.base.errors import FJM2Error
from fjm2.base.quantities import counted
from fjm2.bus.ledgers.replay_listener import ReplayListener
from fjm2.cell.wire.commands import Heartbeat
from fjm2.cell.wire.last_values import VALUES_PAGE, Asked, ValuesPage, ValuesQuery, decode_page
from fjm2.messages.errors import ResourceAllocationError
from fjm2.messages.frame import Frame

from .need import Need

if TYPE_CHECKING:
    from fjm2.bus.bus import Bus

ROOM_S: Final = 1.0
"""Longest wait for keepers to say how many values they take. The send itself waits for them, too."""
_ASK_S: Final = 0.1
"""Time after which they are asked again."""
GRANT_VALUES: Final = 1000
GRANT_KIB: Final = 1024
"""Values, and KiB of them, that a process sends before it asks again."""
GRANT_S: Final = 5.0
"""Time after which it asks again in any case."""
FULL: Final = "last_values_full"
"""Error code of a send whose value keepers have no room for."""
_NUMBER_MASK: Final = 0xFFFF_FFFF


class ValuesUser(Protocol):
    """A consumer that asks for last values."""

    def hear_page(self, page: ValuesPage) -> None: ...
    def hear_frame(self, frame: Frame) -> None: ...


_hubs: "WeakKeyDictionary[Bus, ref[ValuesHub]]" = WeakKeyDictionary()


class ValuesHub:
    """Asks the keepers of one bus, and hears their answers."""

    def __init__(self, bus: "Bus") -> None:
        """Use `of` instead."""
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._holders = 0
        """Connections that use the hub."""
        self._users: dict[ValuesUser, None] = {}
        self._replays = ReplayListener(bus.config, lambda _, frames: self._take_frames(frames), lambda: True)
        self._number = 0
        self._lock = Lock()
        self._granted = Need(0, 0)
        """Values that may be sent before keepers are asked again. Threads use it, too."""
        self._granted_until = 0.0
        self._rooms: dict[bytes, ValuesPage] = {}
        """Answers to the present question for room, by keeper."""
        self._asking = asyncio.Lock()
        self._waiting = 0
        """Sends that wait for an answer. Others do not overtake them."""

    @classmethod
    def of(cls, bus: "Bus") -> "ValuesHub":
        """Return the hub of a bus."""
        found = _hubs.get(bus)
        hub = None if found is None else found()
        if hub is None:
            hub = cls(bus)
            _hubs[bus] = ref(hub)
        return hub

    def join(self) -> None:
        """Hear the keepers, for a connection."""
        if not self._holders:
            self._bus.lanes.signals.hear_commands(VALUES_PAGE, self._hear_page)
        self._holders += 1

    async def leave(self) -> None:
        """Hear them no more, for a connection."""
        self._holders -= 1
        if not self._holders:
            self._bus.lanes.signals.hear_commands(VALUES_PAGE, None)
            await self._replays.close()

    # Consumers

    @property
    def node_id(self) -> int:
        return self._bus.node_id

    def add(self, user: ValuesUser) -> None:
        """Pass answers to a consumer."""
        self._users[user] = None

    def remove(self, user: ValuesUser) -> None:
        """Pass nothing more to a consumer. Calling this twice does no harm."""
        self._users.pop(user, None)

    def next_number(self) -> int:
        """Return a number for a list."""
        self._number = (self._number + 1) & _NUMBER_MASK
        return self._number

    def send(self, query: ValuesQuery) -> None:
        """Ask keepers. What cannot be sent is asked again later."""
        if query.asked is Asked.MESSAGES:
            self._replays.listen()
        with contextlib.suppress(FJM2Error):
            self._bus.lanes.session.send_command(query.encode())

    def _hear_page(self, _: int, content: bytes) -> None:
        page = decode_page(content)
        if page is None or page.reply_to != self._bus.node_id:
            return
        if page.number == 0:
            self._rooms[page.keeper_id] = page
        for user in list(self._users):
            user.hear_page(page)

    def _take_frames(self, frames: list[Frame]) -> None:
        for user in list(self._users):
            for frame in frames:
                user.hear_frame(frame)

    # Room

    def try_grant(self, need: Need) -> bool:
        """Return True if so many values may be sent now, and no other send waits. Any thread may ask."""
        return not self._waiting and self._take(need)

    def _take(self, need: Need) -> bool:
        with self._lock:
            if not self._granted.covers(need) or self._loop.time() > self._granted_until:
                return False
            self._granted = self._granted.without(need)
            return True

    async def grant(self, subject: str, need: Need, heartbeat: Heartbeat) -> None:
        """Wait until so many values may be sent. Raise ResourceAllocationError if keepers have no room for them."""
        self._waiting += 1
        try:
            async with self._asking:
                if not self._take(need):
                    await self._ask_for(subject, need, heartbeat)
        finally:
            self._waiting -= 1

    async def _ask_for(self, subject: str, need: Need, heartbeat: Heartbeat) -> None:
        left = await self._ask_room(heartbeat)
        if left is not None and not left.covers(need):
            raise ResourceAllocationError(
                f"{subject}: keepers have room for {counted(left.values, 'last value')} of {left.kib} KiB in all, but "
                f"{need.values} of {need.kib} KiB would be sent; remove some: send messages without a body to their "
                "topics, with the same `retain`",
                FULL,
            )
        most = Need(max(need.values, GRANT_VALUES), max(need.kib, GRANT_KIB))
        with self._lock:
            self._granted = (most if left is None else most.at_most(left)).without(need)
            self._granted_until = self._loop.time() + GRANT_S

    async def _ask_room(self, heartbeat: Heartbeat) -> Need | None:
        """Return the values that keepers take. Return None if too few of them answer."""
        self._rooms.clear()
        members = len(heartbeat.members)
        query = ValuesQuery(asked=Asked.ROOM, reply_to=self.node_id, keeper_node=0, number=0, cell_id=heartbeat.cell_id)
        ends_at = self._loop.time() + ROOM_S
        while self._loop.time() < ends_at:
            self.send(query)
            again_at = self._loop.time() + _ASK_S
            while self._loop.time() < again_at:
                if len(self._rooms) >= members - members // 2:
                    pages = self._rooms.values()
                    return Need(min(page.values_left for page in pages), min(page.kib_left for page in pages))
                await asyncio.sleep(_POLL_S)
        return None


_POLL_S: Final = 0.001
"""Interval at which it is looked for answers, which come within one or two."""
