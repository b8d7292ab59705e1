"""Handshakes with one peer, begun by either side, until they lead to keys.

A gateway without a session begins a handshake and repeats it until it succeeds. The side that receives the response
uses the session first; the other side uses it as soon as something authentic arrives under it. If both begin at once,
either handshake may complete: the side with the greater public key withdraws its own when it sees the other's, so that
no more than one completes.
"""

from fjm2.norm import Address

from .attempts import Attempts, InitiationFilter
from .crypto.epochs import Epochs
from .crypto.handshake import Opening, Pair, answer
from .events import ClockBehind
from .link.path import Path
from .session_owner import SessionOwner
from .shared import Shared
from .wire import Drop, Initiation, Response

_CLOCK_BEHIND_S = 10.0
"""Excess age at which a timestamp is reported as too old: delays and reordering on the way explain less."""


class Handshakes:
    """Handshakes with one peer. New keys go to its `Epochs`, messages to the endpoint's queue."""

    __slots__ = (
        "_attempts",
        "_epochs",
        "_filter",
        "_is_clock_reported",
        "_opening",
        "_path",
        "_peer",
        "_shared",
        "addresses",
        "pair",
    )

    def __init__(
        self, peer: SessionOwner, pair: Pair, addresses: tuple[Address, ...], path: Path, epochs: Epochs, shared: Shared
    ) -> None:
        self.addresses = addresses
        """Addresses at which the peer may be called."""
        self._peer = peer
        self.pair = pair
        self._path = path
        self._epochs = epochs
        self._shared = shared
        self._attempts = Attempts(shared.wall_ns, shared.random)
        self._filter = InitiationFilter(shared.started_ns - int(shared.config.skew_s * 1e9))
        self._opening: Opening | None = None
        """The handshake that we have begun and that is not answered yet."""
        self._is_clock_reported = False

    @property
    def is_needed(self) -> bool:
        """True if a handshake of ours is wanted."""
        return self._attempts.is_needed

    @property
    def next_at(self) -> float:
        """Time at which to call `begin`."""
        return self._attempts.next_at

    def begin_first(self, now: float) -> None:
        """Begin a handshake, unless one is under way."""
        if self._opening is None:
            self._attempts.count = 0
            self.begin(now)

    def begin(self, now: float) -> None:
        """Begin a handshake in place of one that was not answered."""
        attempts, shared, current = self._attempts, self._shared, self._path.address
        self.stop()
        # The address where the peer was last heard comes first, then every other one, in turn.
        known = [*([current] if current else []), *(one for one in self.addresses if one != current)]
        if known:
            address = known[attempts.count % len(known)]
            index = shared.draw_index()
            self._opening = Opening(self.pair, index, attempts.timestamp_ns(), shared.entropy)
            shared.indexes[index] = self._peer
            self._peer.stats.handshakes_sent += 1
            shared.messages.append((address, self._opening.message))
        attempts.wait(now)

    def stop(self) -> None:
        """Abandon the handshake under way, and plan no other."""
        self._abandon()
        self._attempts.stop()

    def wait(self, now: float) -> None:
        """Plan the next attempt for later."""
        self._attempts.wait(now)

    def receive_initiation(self, initiation: Initiation, message: bytes, address: Address, now: float) -> bool:
        """Answer a handshake of the peer. Return True if it was answered: its session then waits in `Epochs.next`."""
        drops = self._peer.stats.drops
        if not self.pair.is_genuine(message):
            drops[Drop.HANDSHAKE_FORGED] += 1
            return False
        timestamp_ns = initiation.timestamp_ns
        refusal = self._filter.refusal(timestamp_ns, now)
        if refusal is not None:
            drops[refusal] += 1
            if refusal in (Drop.HANDSHAKE_STALE, Drop.HANDSHAKE_REPLAYED):
                self._report_clock(self._filter.behind_s(timestamp_ns))
            return False
        shared = self._shared
        result = answer(self.pair, initiation, shared.draw_index(), self._attempts.timestamp_ns, shared.entropy)
        if result is None:
            drops[Drop.HANDSHAKE_FORGED] += 1
            return False
        agreed, response = result
        self._filter.note_answered(timestamp_ns, now)
        self._epochs.add_answered(agreed, now)
        if self._opening is not None and self.pair.own.public.raw > self.pair.other.raw:
            self._abandon()
            self._attempts.give_way(now)
        self._peer.stats.handshakes_answered += 1
        shared.messages.append((address, response))
        return True

    def receive_response(self, response: Response, message: bytes, now: float) -> bool:
        """Finish our handshake. Return True if its session is now the current one."""
        drops = self._peer.stats.drops
        if not self.pair.is_genuine(message):
            drops[Drop.HANDSHAKE_FORGED] += 1
            return False
        opening = self._opening
        if opening is None or opening.index != response.receiver_index:
            drops[Drop.HANDSHAKE_REPLAYED] += 1
            return False
        agreed = opening.finish(response)
        if agreed is None:
            # The MAC is genuine, so the peer itself made a wrong response. Noise's state is spent: begin again.
            drops[Drop.HANDSHAKE_FORGED] += 1
            self.stop()
            self.wait(now)
            return False
        self._opening = None
        self._filter.note_timestamp(agreed.stamped_ns)
        self._epochs.add_completed(agreed, now)
        return True

    def note_success(self) -> None:
        """Begin no more handshakes, and forget failed attempts: there are new keys."""
        self.stop()
        self._attempts.count = 0

    def _abandon(self) -> None:
        if self._opening is not None:
            self._shared.indexes.pop(self._opening.index, None)
            self._opening = None

    def _report_clock(self, behind_s: float) -> None:
        # A peer that is up has no reason to call, so its old initiation is a replay.
        if not self._is_clock_reported and not self._peer.is_up and behind_s > _CLOCK_BEHIND_S:
            self._is_clock_reported = True
            self._shared.events.append(ClockBehind(self._peer, behind_s))
