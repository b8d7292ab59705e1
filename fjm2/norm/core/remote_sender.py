"""Identity, address and timing of a remote sender."""

from dataclasses import dataclass

from fjm2.norm.core.quantize import group_size_of, rtt_of
from fjm2.norm.core.timers import time_of_wire, wire_time
from fjm2.norm.core.train import Address
from fjm2.norm.core.wire import CongestionControl, FromSender, PayloadIdFormat, payload_id_format


@dataclass(slots=True)
class RemoteSender:
    """One incarnation of a remote sender, as its latest messages describe it."""

    node_id: int
    instance_id: int
    address: Address
    heard_at: float
    """Time of its last message."""
    data_at: float
    """Time of its last message about objects."""
    grtt_s: float = 0.25
    backoff_factor: int = 4
    group_size: int = 1000
    fec_id: int = 5
    field_bits: int = 8
    probe_sent: float | None = None
    """Send time of its last probe by its own clock; None before the first one."""
    probe_received_at: float = 0.0

    def update(self, message: FromSender, address: Address) -> None:
        """Update the values that every message carries."""
        self.address = address
        self.grtt_s = rtt_of(message.grtt_q)
        self.backoff_factor = message.backoff
        self.group_size = group_size_of(message.gsize_q)

    def note_probe(self, probe: CongestionControl, now: float) -> None:
        """Remember when a probe was sent, so that answers can echo it."""
        self.probe_sent = time_of_wire(probe.send_time_s, probe.send_time_us)
        self.probe_received_at = now

    def grtt_response(self, now: float) -> tuple[int, int]:
        """Return the echo of the last probe as seconds and microseconds; zeros if there was none."""
        if self.probe_sent is None:
            return 0, 0
        return wire_time(self.probe_sent + now - self.probe_received_at)

    @property
    def format(self) -> PayloadIdFormat:
        """Format of the sender's payload ids."""
        return payload_id_format(self.fec_id, self.field_bits)
