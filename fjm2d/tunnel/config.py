"""Settings of the tunnel, checked once, at construction."""

from dataclasses import dataclass

from fjm2.errors import ConfigError
from fjm2.norm import Address

from ..keys import PublicKey
from .link.path_mtu import MTU_HIGHEST, MTU_LOWEST, MTU_MIN

RATE_BPS_MIN = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """Settings that hold for all peers of a gateway."""

    keepalive_s: float = 10.0
    """Probe interval of an idle peer. Address translators forget a flow after 30 s or more."""
    probe_s: float = 1.0
    """Probe interval of a peer that data is exchanged with."""
    dead_s: float = 3.0
    """Silence after which a peer is given up, until it is heard again."""
    rekey_s: float = 120.0
    """Age at which keys are renewed. They end for good at one and a half times this age."""
    mtu_bytes: int | None = None
    """Longest IP packet to every peer; None: find it out for each."""
    mtu_max_bytes: int = 1500
    """Longest IP packet that is tried."""
    uplink_bps: float | None = None
    """Rate to all peers together, in bits a second of IP packets; None: no limit."""
    skew_s: float = 300.0
    """Handshakes from longer before this gateway's start count as replays. Clocks must agree within this time."""

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
    """Settings of one peer."""

    public_key: PublicKey
    name: str = ""
    addresses: tuple[Address, ...] = ()
    """Addresses to call, in turn. Without any, the peer has to call us."""
    rate_bps: float | None = None
    """Rate to the peer, in bits a second of IP packets; None: no limit."""
    is_measured: bool = False
    """True to measure the rate, up to `rate_bps`."""
    queue_bytes: int | None = None
    """Bound of the queue, however fast the link is; None: 8 MiB. A slower link queues 250 ms of its rate, or 256 KiB if
    it sends these within 2 s."""

    def __post_init__(self) -> None:
        if self.rate_bps is not None:
            _check("rate_bps", self.rate_bps, RATE_BPS_MIN, 1e12)
        if self.queue_bytes is not None:
            _check("queue_bytes", self.queue_bytes, 2_000, 1 << 30)


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{name}={value}: expected {least:g} to {most:g}")
