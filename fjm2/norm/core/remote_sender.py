"""What a node knows of a remote sender as such: its incarnation, its address and its timing."""

from dataclasses import dataclass

from fjm2.norm.core.quantize import group_size_of, rtt_of
from fjm2.norm.core.timers import time_of_wire, wire_time
from fjm2.norm.core.train import Address
from fjm2.norm.core.wire import CongestionControl, FromSender, PayloadIdFormat, payload_id_format


@dataclass(slots=True)
class RemoteSender:
    """One incarnation of a remote sender, as its last messages describe it."""

    node_id: int
    instance_id: int
    address: Address
    heard_at: float
    """When it last sent anything."""
    data_at: float
    """When it last sent anything of its objects."""
    grtt_s: float = 0.25
    backoff_factor: int = 4
    group_size: int = 1000
    fec_id: int = 5
    field_bits: int = 8
    probe_sent: float | None = None
    """The send time of its last probe, by its clock."""
    probe_received_at: float = 0.0

    def update(self, message: FromSender, address: Address) -> None:
        """Take over what every message says."""
        self.address = address
        self.grtt_s = rtt_of(message.grtt_q)
        self.backoff_factor = message.backoff
        self.group_size = group_size_of(message.gsize_q)

    def note_probe(self, probe: CongestionControl, now: float) -> None:
        """Remember when a probe was sent, so that answers can tell."""
        self.probe_sent = time_of_wire(probe.send_time_s, probe.send_time_us)
        self.probe_received_at = now

    def grtt_response(self, now: float) -> tuple[int, int]:
        """The echo of the last probe; zeros if there was none."""
        if self.probe_sent is None:
            return 0, 0
        return wire_time(self.probe_sent + now - self.probe_received_at)

    @property
    def format(self) -> PayloadIdFormat:
        return payload_id_format(self.fec_id, self.field_bits)
