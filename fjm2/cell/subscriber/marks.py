"""Proofs that W members keep what new subscriptions are to get."""

from typing import Generic

from fjm2.base.ledger import Ledger

from ..wire.requests import Ack
from .context import ConsumerBase, Context
from .outgoing import ConsumerReady, F


class Marks(Generic[F]):
    """Finds out when consumers are ready.

    A keeper confirms nothing to those who know a newer table than it has. So the confirmation of any frame that was
    sent after the table was heard of says that W members have that table.
    """

    def __init__(self, context: Context[F]) -> None:
        self._context = context
        self._waiting: dict[ConsumerBase[F], None] = {}
        """Consumers whose table no manager has named yet."""
        self._flying: dict[int, list[ConsumerBase[F]]] = {}
        """Consumers by the number of the request that proves them."""
        self._placed: dict[tuple[Ledger, int], list[ConsumerBase[F]]] = {}

    def add(self, consumer: ConsumerBase[F]) -> None:
        """Find out when a consumer is ready."""
        self._waiting[consumer] = None

    def receive_heartbeat(self, version: int) -> None:
        """Send a request for the consumers whose table a manager has named. It asks for nothing."""
        named = [each for each in self._waiting if each.table_version <= version]
        if named:
            for each in named:
                del self._waiting[each]
            self._flying[self._context.line.send(None, Ack(0, ()))] = named

    def note_sent(self, number: int, ledger: Ledger, sequence: int) -> None:
        """Note the place of a request."""
        consumers = self._flying.pop(number, None)
        if consumers is not None:
            self._placed[ledger, sequence] = consumers

    def note_unsent(self, number: int) -> None:
        """Note that a request could not be sent."""
        self._waiting.update(dict.fromkeys(self._flying.pop(number, ())))

    def note_stored(self, ledger: Ledger, through: int) -> None:
        """Tell which consumers are ready: W members have a ledger on disk through a sequence."""
        for place in [each for each in self._placed if each[0] == ledger and each[1] <= through]:
            for consumer in self._placed.pop(place):
                if consumer.number:
                    self._context.events.append(ConsumerReady(consumer.handle, consumer.table_version))

    def clear(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        self._flying.clear()
        self._placed.clear()
