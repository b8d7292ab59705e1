"""Requests of clients that a member has heard, until they are decided and applied."""

from collections.abc import Iterator
from typing import Final

from fjm2.base.ledger import Ledger

LEDGER_REQUESTS_MAX: Final = 64
"""Most requests of a client that wait. Further ones are not decided, and the client sends them again."""
INBOX_BYTES_MAX: Final = 16 << 20
"""Bound of the bytes of all requests that wait."""
_REQUEST_BYTES: Final = 200
"""Bytes that a request takes beside its body."""


class RequestInbox:
    """Bodies of requests, by ledger and sequence."""

    def __init__(self) -> None:
        self.dropped = 0
        """Number of requests for which there was no room."""
        self._bodies: dict[Ledger, dict[int, bytes]] = {}
        self._bytes = 0
        self.wanted: dict[tuple[Ledger, int], None] = {}
        """Requests that a decision grants, and that are not here. There is always room for them."""

    def add(self, ledger: Ledger, sequence: int, body: bytes) -> None:
        """Take a request."""
        bodies = self._bodies.setdefault(ledger, {})
        if sequence in bodies:
            return
        is_wanted = self.wanted.pop((ledger, sequence), 0) is None
        size = len(body) + _REQUEST_BYTES
        has_room = len(bodies) < LEDGER_REQUESTS_MAX and self._bytes + size <= INBOX_BYTES_MAX
        if is_wanted or has_room:
            bodies[sequence] = body
            self._bytes += size
        else:
            self.dropped += 1
            if not bodies:
                del self._bodies[ledger]

    def find(self, ledger: Ledger, sequence: int) -> bytes | None:
        """Return the body of a request, or None if it is not here."""
        return self._bodies.get(ledger, {}).get(sequence)

    def waiting(self, ledger: Ledger, after: int) -> list[tuple[int, bytes]]:
        """Return the requests of a ledger behind a sequence, in order."""
        return sorted(each for each in self._bodies.get(ledger, {}).items() if each[0] > after)

    def ledgers(self) -> Iterator[Ledger]:
        """Yield the ledgers that have requests here, in the order in which they were first heard."""
        return iter(list(self._bodies))

    def forget(self, ledger: Ledger, through: int) -> None:
        """Forget the requests of a ledger through a sequence: they are applied."""
        self._remove(ledger, [sequence for sequence in self._bodies.get(ledger, ()) if sequence <= through])

    def forget_from(self, ledger: Ledger, first: int) -> None:
        """Forget the requests of a ledger from a sequence on: they are outside its final set."""
        self._remove(ledger, [sequence for sequence in self._bodies.get(ledger, ()) if sequence >= first])

    def _remove(self, ledger: Ledger, sequences: list[int]) -> None:
        bodies = self._bodies.get(ledger)
        if bodies is None:
            return
        for sequence in sequences:
            self._bytes -= len(bodies.pop(sequence)) + _REQUEST_BYTES
        if not bodies:
            del self._bodies[ledger]

    def move_to_end(self, ledger: Ledger) -> None:
        """Let other ledgers have their turn first."""
        self._bodies[ledger] = self._bodies.pop(ledger)
