"""Messages that a publisher with an outbox sends again because keepers had not got them, and a consumer had."""

from collections import OrderedDict
from typing import Final

from fjm2.base.ledger import Ledger
from fjm2.base.ranges import RangeSet
from fjm2.messages.header import CONNECTION_ID, NUMBER, Header

OPEN_MAX: Final = 1 << 15
"""Most messages that are remembered of those that the consumer is not done with: twice as many as it holds."""
ISLANDS_MAX: Final = 1024
"""Most separate ranges of message numbers that are remembered of a connection. The lowest ones are forgotten first."""
CONNECTIONS_MAX: Final = 256
"""Most connections of which messages are remembered."""
Place = tuple[Ledger, int]
"""A ledger and a sequence in it."""
_Identity = tuple[int, int]
"""Connection and number of a message, which make its message id."""


class Repeats:
    """Knows the messages that a consumer got from outboxes.

    Only the ledgers of outboxes begin with producer epoch 1. The owner asks about those with a later one than 0, so
    that others cost nothing.
    """

    def __init__(self) -> None:
        self._open: dict[_Identity, list[Place]] = {}
        """Places of each message that the consumer is not done with. The first is that of its delivery."""
        self._done: OrderedDict[int, RangeSet] = OrderedDict()
        """Numbers of the messages that it is done with, by connection."""

    def clear(self) -> None:
        """Forget everything: the cell gives again what it does not know as acknowledged."""
        self._open.clear()
        self._done.clear()

    def is_new(self, header: Header, ledger: Ledger, sequence: int) -> bool:
        """Note that a message came. Return False if the consumer got it before, and is not done with it: then its
        `finish` names this place, too."""
        identity = header[CONNECTION_ID], header[NUMBER]
        places = self._open.get(identity)
        if places is None:
            self._open[identity] = [(ledger, sequence)]
            if len(self._open) > OPEN_MAX:
                del self._open[next(iter(self._open))]
            return True
        places.append((ledger, sequence))
        return False

    def is_done(self, header: Header) -> bool:
        """Return True if the consumer got a message before, and is done with it."""
        done = self._done.get(header[CONNECTION_ID])
        return done is not None and header[NUMBER] in done

    def finish(self, header: Header) -> list[Place]:
        """Note that the consumer is done with a message. Return the places at which it came again."""
        connection_id, number = header[CONNECTION_ID], header[NUMBER]
        places = self._open.pop((connection_id, number), [])
        done = self._done.get(connection_id)
        if done is None:
            done = self._done[connection_id] = RangeSet()
            if len(self._done) > CONNECTIONS_MAX:
                self._done.popitem(last=False)
        done.add(number, number + 1)
        if done.range_count > ISLANDS_MAX:
            done.remove(*done.first_range)
        return places[1:]
