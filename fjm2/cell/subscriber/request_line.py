"""Requests of a connection that are not decided, over all its sessions."""

from typing import Final, NamedTuple, Protocol

from fjm2.base.ledger import Ledger

from ..service.reasons import Reason
from ..wire.ranges import Spans
from ..wire.records import ApplyRecord
from ..wire.requests import Ack, Request, encode_request
from .outgoing import SendRequest

FLYING_MAX: Final = 32
"""Most requests that are not decided. A keeper has room for 64 of a ledger, and drops what is beyond."""
NUDGE_S: Final = 2.0
"""Time without a decision after which a request is followed by one that asks for nothing.

A keeper that had no room drops a request, and the decision on a later one tells that. A request is never sent again
before, since the cell would carry it out twice."""
NUDGES_MAX: Final = 8
"""Most of these at once."""
UNSENT_S: Final = 0.5
"""Time after which a request is sent again that could not be sent."""
LEDGERS_MAX: Final = 16
"""Most ledgers that are remembered. Requests go into the newest one."""
NEVER: Final = float("inf")


class Asker(Protocol):
    """Owner of requests."""

    def learn(self, request: Request, place: int, reason: Reason | None, now: float) -> None:
        """Take the decision on a request, which was at a sequence; None: it was not decided, and has to be sent
        again."""


class _Flight(NamedTuple):
    asker: Asker | None
    """None for a request that asks for nothing."""
    request: Request


class _Place(NamedTuple):
    number: int
    at: float


class Decision(NamedTuple):
    """The decision on one request."""

    asker: Asker
    request: Request
    sequence: int
    reason: Reason | None


class RequestLine:
    """Sends requests, and finds them in decisions."""

    def __init__(self) -> None:
        self.messages: list[SendRequest] = []
        """Requests to be sent."""
        self._number = 0
        self._flights: dict[int, _Flight] = {}
        self._places: dict[Ledger, dict[int, _Place]] = {}
        """Requests that were sent and are not decided, by ledger and sequence."""
        self._finals: dict[Ledger, Spans | None] = {}
        """Final sets of the last ledgers that requests were sent in; None while one is open."""
        self._nudged_at = 0.0
        self._blocked_until = 0.0

    def has_room(self, now: float) -> bool:
        """Return True if a request may be sent."""
        return len(self._flights) < FLYING_MAX and now >= self._blocked_until

    def send(self, asker: Asker | None, request: Request) -> int:
        """Send a request. Return its number."""
        self._number += 1
        self._flights[self._number] = _Flight(asker, request)
        self.messages.append(SendRequest(self._number, encode_request(request)))
        return self._number

    def note_sent(self, number: int, ledger: Ledger, sequence: int, now: float) -> Decision | None:
        """Note where a request is. It was sent in vain if the ledger is closed, of which its owner learns soon."""
        final = self._finals.setdefault(ledger, None)
        if final is not None and not _has(final, sequence):
            return self.note_unsent(number, now)
        while len(self._finals) > LEDGERS_MAX:
            del self._finals[next(iter(self._finals))]
        if number in self._flights:
            self._places.setdefault(ledger, {})[sequence] = _Place(number, now)
        return None

    def note_unsent(self, number: int, now: float) -> Decision | None:
        """Note that a request could not be sent."""
        self._blocked_until = now + UNSENT_S
        return self._land(number, 0, None)

    def decide(self, record: ApplyRecord) -> list[Decision]:
        """Return the decisions on requests that a record has."""
        places = self._places.get(record.ledger)
        if places is None:
            return []
        reasons = {verdict.sequence: verdict.reason for verdict in record.verdicts}
        through = sorted(sequence for sequence in places if sequence <= record.through)
        return self._decide(record.ledger, [(sequence, reasons.get(sequence)) for sequence in through])

    def close(self, ledger: Ledger, final: Spans) -> list[Decision]:
        """Return the requests of a closed ledger that will never be decided: they are outside its final set."""
        if ledger in self._finals:
            self._finals[ledger] = final
        lost = sorted(sequence for sequence in self._places.get(ledger, {}) if not _has(final, sequence))
        return self._decide(ledger, [(sequence, None) for sequence in lost])

    def _decide(self, ledger: Ledger, reasons: list[tuple[int, int | None]]) -> list[Decision]:
        places = self._places.get(ledger, {})
        landed = [self._land(places.pop(sequence).number, sequence, reason) for sequence, reason in reasons]
        if not places:
            self._places.pop(ledger, None)
        return [each for each in landed if each is not None]

    def _land(self, number: int, sequence: int, reason: int | None) -> Decision | None:
        flight = self._flights.pop(number, None)
        if flight is None or flight.asker is None:
            return None
        return Decision(flight.asker, flight.request, sequence, None if reason is None else _reason_of(reason))

    def forget(self, asker: Asker) -> None:
        """Forget whose requests these are: their owner has ended."""
        for number, flight in self._flights.items():
            if flight.asker is asker:
                self._flights[number] = _Flight(None, flight.request)

    def clear(self) -> None:
        """Forget all requests: nobody can say what became of them."""
        self._flights.clear()
        self._places.clear()

    def nudge(self, now: float) -> None:
        """Send a request that asks for nothing, if another one has waited for long."""
        if now >= self.poll_timeout():
            self._nudged_at = now
            if len(self._flights) < FLYING_MAX + NUDGES_MAX:
                self.send(None, Ack(0, ()))

    def poll_timeout(self) -> float:
        """Return the time at which to call `nudge`, or NEVER."""
        if not self._places:
            return NEVER
        oldest = min(next(iter(places.values())).at for places in self._places.values())
        return max(oldest, self._nudged_at) + NUDGE_S

    def unblock(self, now: float) -> None:
        """Let requests be sent again, if it is time."""
        if now >= self._blocked_until:
            self._blocked_until = 0.0

    def poll_unblocked(self) -> float:
        """Return the time at which to call `unblock`, or NEVER."""
        return self._blocked_until or NEVER


def _has(final: Spans, sequence: int) -> bool:
    return any(first <= sequence <= last for first, last in final)


def _reason_of(number: int) -> Reason:
    """Return the reason of a verdict. One that a newer cell gives is taken as a refusal without a better word."""
    try:
        return Reason(number)
    except ValueError:
        return Reason.NOT_OFFERED
