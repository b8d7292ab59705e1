"""Settings of the tunnel, checked once, at construction."""

from dataclasses import dataclass

from fjm2.errors import ConfigError
from fjm2.norm import Address

from ..keys import PublicKey
from .link.path_mtu import MTU_HIGHEST, MTU_LOWEST, MTU_MIN

RATE_BPS_MIN = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """What all peers of a gateway have in common."""

    keepalive_s: float = 10.0
    """An idle peer is asked so often. Address translators forget a flow after 30 s or more."""
    probe_s: float = 1.0
    """A peer with which data is exchanged is asked so often."""
    dead_s: float = 3.0
    """A peer that has been silent for so long is given up, until it is heard again."""
    rekey_s: float = 120.0
    """Keys are renewed after this time. They end for good after half as long again."""
    mtu_bytes: int | None = None
    """Longest IP packet to every peer; None: it is found out."""
    mtu_max_bytes: int = 1500
    """The longest one that is tried."""
    uplink_bps: float | None = None
    """What all peers together may be sent, in bits of IP packets; None: no limit."""
    skew_s: float = 300.0
    """A handshake stamped so long before this gateway started is taken for a replay: clocks must agree so far."""

    def __post_init__(self) -> None:
        _check("probe_s", self.probe_s, 0.05, 60)
        _check("keepalive_s", self.keepalive_s, self.probe_s, 3600)
        _check("dead_s", self.dead_s, 2 * self.probe_s, 3600)
        _check("rekey_s", self.rekey_s, 10, 86_400)
        _check("skew_s", self.skew_s, 1, 10 * 365 * 86_400)
        _check("mtu_max_bytes", self.mtu_max_bytes, MTU_MIN, MTU_HIGHEST)
        if self.mtu_bytes is not None:
            _check("mtu_bytes", self.mtu_bytes, MTU_LOWEST, MTU_HIGHEST)
        if self.uplink_bps is not None:
            _check("uplink_bps", self.uplink_bps, RATE_BPS_MIN, 1e12)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """One peer."""

    public_key: PublicKey
    name: str = ""
    addresses: tuple[Address, ...] = ()
    """Where it may be found; tried in turn. Without any it has to call us."""
    rate_bps: float | None = None
    """What it may be sent, in bits of IP packets; None: no limit."""
    is_measured: bool = False
    """Whether the rate is found out; `rate_bps` is then the most."""
    queue_bytes: int | None = None
    """The most that may wait for the link. It is 250 ms of the rate, or 256 KiB if they go within 2 s; None: 8 MiB."""

    def __post_init__(self) -> None:
        if self.rate_bps is not None:
            _check("rate_bps", self.rate_bps, RATE_BPS_MIN, 1e12)
        if self.queue_bytes is not None:
            _check("queue_bytes", self.queue_bytes, 2_000, 1 << 30)


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name}={value}: expected {least:g} to {most:g}")
