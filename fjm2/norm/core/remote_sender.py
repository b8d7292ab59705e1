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
    """Time at which the sender's last message arrived."""
    data_at: float
    """Time at which the sender's last message about objects arrived."""
    data_bytes: int = 0
    """Bytes of objects received from it, repetitions included."""
    stale_bytes: int = 0
    """Part of `data_bytes` that had been received before, or could not be used."""
    messages: int = 1
    """Messages received from it, where a run of DATA counts once and most trains that continue another do not count."""
    grtt_s: float = 0.25
    backoff_factor: int = 4
    group_size: int = 1000
    fec_id: int = 5
    field_bits: int = 8
    probe_sent: float | None = None
    """Time at which the sender sent its last probe, by the sender's clock; None before the first probe."""
    probe_received_at: float = 0.0
    began_at: float = 0.0
    """Time when it was first heard. Of two incarnations, the earlier one has the better claim to the name."""

    def update(self, message: FromSender) -> None:
        """Update the values that every message of the sender carries."""
        self.grtt_s = rtt_of(message.grtt_q)
        self.backoff_factor = message.backoff
        self.group_size = group_size_of(message.gsize_q)

    def note_stale(self, size: int, fresh_bytes: int) -> None:
        """Note that of `size` bytes that arrived, `fresh_bytes` at most were new."""
        self.stale_bytes += max(size - fresh_bytes, 0)

    @property
    def progress(self) -> int:
        """Bytes of objects that were new when they arrived, as an EXT_STATUS carries them."""
        return (self.data_bytes - self.stale_bytes) & 0xFFFFFFFF

    def note_probe(self, probe: CongestionControl, now: float) -> None:
        """Remember when a probe was sent and received, so that answers can echo it."""
        self.probe_sent = time_of_wire(probe.send_time_s, probe.send_time_us)
        self.probe_received_at = now

    def grtt_response(self, now: float) -> tuple[int, int]:
        """Return the echo of the last probe in seconds and microseconds: its send time plus the time since its arrival.

        Both are 0 if no probe has arrived.
        """
        if self.probe_sent is None:
            return 0, 0
        return wire_time(self.probe_sent + now - self.probe_received_at)

    @property
    def format(self) -> PayloadIdFormat:
        """Format of the sender's payload ids."""
        return payload_id_format(self.fec_id, self.field_bits)
