"""One ledger, as a consumer reads it."""

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Final, Generic

from fjm2.base.ledger import Ledger

from ..wire.catch_up import CatchUpPage
from .context import Context
from .ledger_acks import LedgerAcks
from .outgoing import Deliver, F

if TYPE_CHECKING:
    from .consumer import Consumer

RETRY_S: Final = 0.3
"""Time after which what was asked for and did not come is asked for again, mostly of another keeper."""


class Reader(Generic[F]):
    """Reads a ledger for a consumer: gets its frames in any order, some of them never or twice, and delivers them in
    order."""

    __slots__ = ("acks", "asked_at", "consumer", "context", "frame_hash", "heard_at", "ledger")

    def __init__(
        self, context: Context[F], consumer: "Consumer[F]", frame_hash: int, ledger: Ledger, *, is_shared: bool
    ) -> None:
        self.context = context
        self.consumer = consumer
        self.frame_hash = frame_hash
        self.ledger = ledger
        self.acks = LedgerAcks(is_shared=is_shared)
        self.asked_at = -RETRY_S
        """Time of the last question."""
        self.heard_at = 0.0

    @property
    def is_behind(self) -> bool:
        """Return True if something is missing."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Return True if nothing is missing, and nothing waits to be acknowledged."""
        acks = self.acks
        return not (self.is_behind or acks.outstanding or acks.asked or acks.flying)

    def hear(self, first: int, frames: Sequence[F], now: float) -> None:
        """Take frames to the consumer's destination."""
        raise NotImplementedError

    def skip(self, first: int, count: int, now: float) -> None:
        """Take numbers of frames to other destinations."""
        raise NotImplementedError

    def take_page(self, page: CatchUpPage, source: int, now: float) -> None:
        """Take a keeper's page of this ledger."""
        raise NotImplementedError

    def advance(self, now: float) -> None:
        """Deliver what can be delivered."""
        raise NotImplementedError

    def turn(self, now: float) -> None:
        """Ask for what is missing, if it is time."""
        raise NotImplementedError

    def forget(self) -> None:
        """Give up all that waits."""
        raise NotImplementedError

    def _deliver(self, first: int, frames: Sequence[F], *, is_redelivered: bool) -> None:
        consumer = self.consumer
        end = first + len(frames)
        consumer.room -= end - first
        self.acks.outstanding.add(first, end)
        self.context.events.append(Deliver(consumer.handle, self.ledger, first, frames, is_redelivered))

    def _ask(self, first: int, now: float, heard: Container[int] = ()) -> None:
        """Ask a keeper, if possible one that was not heard."""
        self.asked_at = now
        consumer = self.consumer
        self.context.ask(consumer.session, consumer.number, self.ledger, first, now, is_exact=True, heard=heard)
