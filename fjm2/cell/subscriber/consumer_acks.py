"""Acknowledgements of one consumer, over all its ledgers, and the calls that asked for them."""

from collections import deque
from collections.abc import Iterable
from typing import Generic, NamedTuple

from fjm2.base.ledger import Ledger

from ..service.reasons import Reason
from ..wire.ranges import Range
from .context import ConsumerBase, Context
from .outgoing import AcknowledgementDecided, F
from .request_line import NEVER

Acked = tuple[Ledger, int, int]
"""A ledger, and the first and the last of consecutive messages."""


class _Ticket(NamedTuple):
    """One call of `acknowledge` that is not decided."""

    number: int
    ranges: tuple[Acked, ...]


class ConsumerAcks(Generic[F]):
    """Finds ranges for requests, and tells when a call is decided."""

    def __init__(self, context: Context[F], consumer: ConsumerBase[F]) -> None:
        self._context = context
        self._consumer = consumer
        self._tickets: deque[_Ticket] = deque()
        self._refused: dict[Ledger, Reason] = {}
        """Ledgers of which a range was refused for good, for as long as calls wait."""

    def acknowledge(self, number: int, ranges: Iterable[Acked]) -> None:
        """Acknowledge messages."""
        ticket = _Ticket(number, tuple(ranges))
        for ledger, first, last in ticket.ranges:
            reader = self._consumer.readers.get(ledger)
            if reader is not None:
                reader.acks.ask(first, last + 1)
                self._consumer.dirty[reader] = None
        self._tickets.append(ticket)

    def give_back(self, number: int, ranges: Iterable[Acked]) -> list[Range]:
        """Give messages back. Return what the request names."""
        ticket = _Ticket(number, tuple(ranges))
        named: list[Range] = []
        for ledger, first, last in ticket.ranges:
            reader = self._consumer.readers.get(ledger)
            for low, end in [] if reader is None else reader.acks.give_back(first, last + 1):
                named.append(Range(ledger, low, end - low, self._consumer.number))
        self._tickets.append(ticket)
        return named

    def take(self, ranges: list[Range], most: int, now: float) -> bool:
        """Add ranges to a request. Return True if no others may be added."""
        for reader in list(self._consumer.dirty):
            acks = reader.acks
            if most <= 0:
                return True
            if not acks.is_due(now):
                if not acks.asked:
                    del self._consumer.dirty[reader]
                continue
            if acks.failures and ranges:
                continue  # the cell could not take it: it does not spoil others again
            taken = acks.take(most, is_shared=self._consumer.is_handed(reader.ledger))
            ranges += (Range(reader.ledger, first, end - first, self._consumer.number) for first, end in taken)
            most -= len(taken)
            if not acks.asked:
                del self._consumer.dirty[reader]
            if acks.failures and taken:
                return True
        return False

    def land(self, each: Range, reason: Reason) -> None:
        """Note that a request about a range is decided for good."""
        reader = self._consumer.readers.get(each.ledger)
        if reader is not None:
            reader.acks.land(each.first, each.last + 1)
            if reason is not Reason.GRANTED:
                self._refused[each.ledger] = reason

    def fail(self, each: Range, delay_from: float | None) -> None:
        """Note that the acknowledgement of a range has to be asked for again, at once or after a while."""
        reader = self._consumer.readers.get(each.ledger)
        if reader is not None:
            reader.acks.fail(each.first, each.last + 1)
            if delay_from is not None:
                reader.acks.delay(delay_from)
            self._consumer.dirty[reader] = None

    def settle(self) -> None:
        """Tell of calls that are decided, in their order."""
        while self._tickets and not any(self._is_waiting(*each) for each in self._tickets[0].ranges):
            number, ranges = self._tickets.popleft()
            refusals = [self._refused[ledger] for ledger, _, _ in ranges if ledger in self._refused]
            self._context.events.append(AcknowledgementDecided(number, refusals[0] if refusals else Reason.GRANTED))
        if not self._tickets:
            self._refused.clear()

    def _is_waiting(self, ledger: Ledger, first: int, last: int) -> bool:
        reader = self._consumer.readers.get(ledger)
        return reader is not None and reader.acks.is_waiting(first, last + 1)

    @property
    def next_at(self) -> float:
        """Time at which something is to be acknowledged again."""
        return min((reader.acks.retry_at for reader in self._consumer.dirty if reader.acks.failures), default=NEVER)
