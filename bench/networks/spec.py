"""Descriptions of networks."""

from dataclasses import dataclass

from .lan import Lan, Loopback
from .network import Network
from .wan import Wan


@dataclass(frozen=True, slots=True)
class NetworkSpec:
    """The network that a group of runs shares."""

    network: str
    """"loopback", "lan" or "wan"."""
    fanout: int
    """Number of subscribers."""
    loss: float
    """Probability that a packet is lost."""
    rate_bps: float | None
    is_offloaded: bool

    def __repr__(self) -> str:
        # The keys of results in existing folders contain a checksum of this text.
        return (
            f"Field(network={self.network!r}, fanout={self.fanout!r}, loss={self.loss!r}, "
            f"rate_bps={self.rate_bps!r}, is_offloaded={self.is_offloaded!r})"
        )

    def open(self) -> Network:
        """Return the network. It is made when it is entered as a context."""
        if self.network == "loopback":
            return Loopback(self.fanout)
        if self.network == "wan":
            return Wan(self.rate_bps, self.loss, is_offloaded=self.is_offloaded)
        return Lan(self.fanout, rate_bps=self.rate_bps, loss=self.loss, is_offloaded=self.is_offloaded)
