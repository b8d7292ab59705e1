"""Everything that the sessions and consumers of one connection share."""

from collections import deque
from collections.abc import Callable, Container
from random import Random
from typing import TYPE_CHECKING, Final, Generic

from fjm2.base.ledger import Ledger

from ..client.cell_choice import CellChoice
from ..outgoing import SendCommand
from ..wire.catch_up import CatchUpQuery
from ..wire.commands import MemberFlag
from .outgoing import Event, F, ListenToReplays, Outgoing
from .request_line import RequestLine
from .routes import FrameRoutes

if TYPE_CHECKING:
    from .consumer import Consumer
    from .reader import Reader
    from .session import ClientSession

HELD_BYTES_MAX: Final = 8 << 20
"""Most bytes of frames that wait for those before them, over all consumers of a connection. What does not fit is
forgotten, and asked for again."""
REPLAY_LISTEN_S: Final = 10.0
"""Time for which a connection goes on to listen to replays after a question."""


class FrameRoom(Generic[F]):
    """The room for frames that wait."""

    def __init__(self, detach: Callable[[F], tuple[F, int]]) -> None:
        self.detach: Final = detach
        """Returns a copy of a frame that keeps nothing else in memory, and its size."""
        self.bytes = 0
        """Bytes of all frames that wait."""

    def take(self, size: int) -> bool:
        """Take room for a frame. Return False if there is none."""
        if self.bytes and self.bytes + size > HELD_BYTES_MAX:
            return False
        self.bytes += size
        return True


class Context(Generic[F]):
    """The connection's state that sessions, consumers and their readers use."""

    def __init__(self, node_id: int, random: Random, detach: Callable[[F], tuple[F, int]]) -> None:
        self.node_id: Final = node_id
        self.random: Final = random
        self.frames: Final = FrameRoom(detach)
        self.choice = CellChoice()
        self.line = RequestLine()
        self.events: deque[Event[F]] = deque()
        self.messages: deque[Outgoing] = deque()
        self.table_version = 0
        """Newest version of the table that was heard of."""
        self.routes: FrameRoutes[F] = FrameRoutes()
        self.sessions: dict[int, ClientSession[F]] = {}
        """Sessions that have not ended."""
        self.behind: dict[Reader[F], None] = {}
        """Readers that lack something, and have room for it."""
        self.attached: list[Consumer[F]] = []
        """Consumers that have got their subscriptions, and that nobody has looked at since."""
        self.added: dict[tuple[str, str], None] = {}
        """Subscriptions, by client id and name, that the entry which is being read has made."""
        self.renew_at = 0.0
        """Time at which leases are renewed."""
        self._listens_until = 0.0

    @property
    def cell_id(self) -> int:
        """Id of the cell; 0 if none was heard."""
        return 0 if self.choice.heartbeat is None else self.choice.heartbeat.cell_id

    @property
    def majority(self) -> int:
        """Number of keepers of which one at least has a message that W have stored: W of K, and at least one."""
        return len(() if self.choice.heartbeat is None else self.choice.heartbeat.members) // 2 + 1

    def note_behind(self, reader: "Reader[F]") -> None:
        """Note that a reader lacks something."""
        if reader.consumer.room:
            self.behind[reader] = None
        else:
            reader.consumer.paused[reader] = None

    def ask(
        self,
        session: int,
        consumer: int,
        ledger: Ledger,
        first: int,
        now: float,
        *,
        is_exact: bool,
        heard: Container[int] = (),
    ) -> None:
        """Ask one of the keepers for a page of what a consumer is to get."""
        heartbeat = self.choice.heartbeat
        members = () if heartbeat is None else heartbeat.members
        keepers = [each.node_id for each in members if each.flags & MemberFlag.LIVE and each.node_id]
        if not keepers:
            return
        if now + REPLAY_LISTEN_S / 2 > self._listens_until:
            self._listens_until = now + REPLAY_LISTEN_S
            self.events.append(ListenToReplays(self._listens_until))
        keepers = [node for node in keepers if node not in heard] or keepers
        query = CatchUpQuery(
            is_exact=is_exact,
            reply_to=self.node_id,
            keeper_node=self.random.choice(keepers),
            consumer=consumer,
            cell_id=self.cell_id,
            session=session,
            ledger=ledger,
            first=first,
        )
        self.messages.append(SendCommand(query))
