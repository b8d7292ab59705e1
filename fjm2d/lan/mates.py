"""Exchange of beacons with the other gateways of this LAN, and application of the election's outcome."""

from collections.abc import Callable

from fjm2.base.logs import Log
from fjm2.norm import Train

from ..forwarding.election import Election, Other
from ..forwarding.forwarder import Forwarder
from ..tunnel import Endpoint, Peer
from .groups import Lan, LanGroup

log = Log("fjm2d.gateway")


class Mates:
    """The election as it is held on the LAN: its beacons, and its effect on the forwarder."""

    def __init__(
        self,
        election: Election,
        forwarder: Forwarder[Peer],
        endpoint: Endpoint,
        lan: Lan,
        on_forwarding: Callable[[], None],
    ) -> None:
        """`on_forwarding` is called when this gateway becomes the forwarder."""
        self.election = election
        self._forwarder = forwarder
        self._endpoint = endpoint
        self._lan = lan
        self._on_forwarding = on_forwarding

    def receive(self, _: LanGroup, train: Train, now: float) -> None:
        """Receive the beacons of a train."""
        for start in range(0, train.data.size, train.segment_bytes):
            beacon = train.data[start : start + train.segment_bytes].tobytes()
            self.election.receive(beacon, train.address, now)
        self.update(now)

    def update(self, now: float) -> None:
        """Apply the outcome of the election, and send a beacon if one is due."""
        election, forwarder = self.election, self._forwarder
        here = election.here(now)
        forwarder.note_same_lan(here)
        election.is_usable = any(peer.is_up and peer.id not in here for peer in self._endpoint.peers.values())
        for group in self._lan.groups.values():
            addresses = election.addresses(group.hash)
            if group.ignore(addresses):
                forwarder.note_mates(group.hash, addresses)
        if forwarder.is_forwarder != election.is_forwarder:
            forwarder.is_forwarder = election.is_forwarder
            if election.is_forwarder:
                self._on_forwarding()
            event = "forwarding_began" if election.is_forwarder else "forwarding_ended"
            log.info(event, mates=[f"{mate:08x}" for mate in election.live_mates(now)])
        self._send(election.poll_beacon(self._lan.ports(), now))

    def tick(self, now: float) -> None:
        """Tell the election the time, and apply its outcome. Call it at every tick of the gateway."""
        self.election.handle_timeout(now)
        self.update(now)

    def say_goodbye(self, now: float) -> None:
        """Tell the mates that this gateway leaves."""
        self._send(self.election.goodbye(self._lan.ports(), now))

    def rivals(self, now: float) -> list[Other]:
        """Return gateways that carry a group of ours although they are no mates."""
        return [other for other in self.election.strangers(now) if other.groups & self._lan.groups.keys()]

    def _send(self, beacon: bytes | None) -> None:
        if beacon is not None and self._lan.beacons is not None:
            self._lan.beacons.send_bytes(beacon)
