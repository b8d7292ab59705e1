"""Reports of a watch: plain values, ready for a screen or for JSON."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport:
    """A connection, from its announcements."""

    connection_id: str
    """16 hexadecimal digits."""
    client_id: str | None
    """Client id, if it has one."""
    node_id: int
    """Node that it receives with."""
    address: str | None
    """Address and port that this node is heard from."""
    seen_s: float
    """Seconds since its first announcement was heard."""
    subscriptions: tuple[str, ...]
    """Topics by name, or by hash (`#` and eight digits) while the name is unknown."""
    subscribes_to_more: bool
    """True if it subscribes to more topics than its announcements list."""
    publishes: tuple[str, ...]
    """Topics it published to recently."""
    gateway: str | None
    """Host of the gateway that it is heard through."""

    @property
    def label(self) -> str:
        """Client id, or the connection id if it has none."""
        return self.client_id or self.connection_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A topic or queue, with its traffic."""

    name: str | None
    """Name; None until something is published to it, unless the watch was told the name."""
    hash: int
    """Hash by which announcements name the destination."""
    messages: int
    """Messages since the watch began. All other totals, too, are since then."""
    messages_per_s: float
    """Messages per second."""
    bytes_per_s: float
    """Bytes per second of whole frames."""
    publishers: tuple[str, ...]
    """Client ids, or connection ids of connections without one."""
    subscribers: tuple[str, ...]
    """Client ids, or connection ids of connections without one."""

    @property
    def label(self) -> str:
        """Name, or the hash while the name is unknown."""
        return self.name or hash_label(self.hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderReport:
    """A NORM sender: one lane of a bus member, or a foreign program."""

    node_id: int
    """Node id in the group."""
    owner: str | None
    """Its connections, even if they have left; None if no connection announced it."""
    lane: int | None
    """Lane 0 to 2, by priority; None if the sender is foreign."""
    address: str | None
    """Address and port it is heard from."""
    messages: int
    """Messages since the watch began."""
    messages_per_s: float
    """Messages per second."""
    bytes: int
    """NORM bytes in datagrams since the watch began."""
    bytes_per_s: float
    """NORM bytes per second."""
    datagrams: int
    """Datagrams of all kinds."""
    repairs: int
    """Segments sent again."""
    repairs_per_s: float
    """Segments sent again per second."""
    parity: int
    """Parity segments."""
    nacks: int
    """Repair requests sent to it."""
    nacks_per_s: float
    """Repair requests per second."""
    datagrams_missed: int
    """Datagrams it sent, by their sequence numbers, that were not heard here."""
    grtt_s: float | None
    """Round-trip time in seconds that it assumes for the group."""

    @property
    def label(self) -> str:
        """Its owner, or its node id in hexadecimal."""
        return self.owner or f"{self.node_id:08x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverReport:
    """A node that answers senders."""

    node_id: int
    """Node id in the group."""
    owner: str | None
    """Its connections; None if no connection announced it."""
    address: str | None
    """Address and port it is heard from."""
    nacks: int
    """Repair requests (NACKs) it sent."""
    nacks_per_s: float
    """Repair requests per second."""
    requests: int
    """Repairs requested. One request may cover a range of segments."""
    acks: int
    """Confirmations it sent."""
    confirm_s: float | None
    """Longest time in seconds that a recent confirmation took."""
    awaited_s: float | None
    """Seconds that a sender has been waiting for its confirmation."""
    given_up_by: tuple[str, ...] = ()
    """Senders that asked it in vain, gave up, and continue without it."""

    @property
    def label(self) -> str:
        """Its owner, or its node id in hexadecimal."""
        return self.owner or f"{self.node_id:08x}"

    @property
    def delay_s(self) -> float:
        """Seconds by which it delays senders that wait for it."""
        return max(self.confirm_s or 0.0, self.awaited_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """A gateway of this network."""

    host: str
    """Address."""
    gateway_id: int | None
    """Id from its beacon; None if no beacon was heard."""
    is_forwarding: bool | None
    """True if it forwards for this network, False if it stands by; None if no beacon was heard."""
    nodes: int
    """Remote members that are heard through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusReport:
    """State of a bus."""

    seconds: float
    """Seconds since the watch began."""
    interval_s: float
    """Seconds that the rates refer to."""
    datagrams: int
    """Datagrams received."""
    not_norm: int
    """Datagrams received that are not valid NORM."""
    overruns: int
    """Datagrams that the kernel dropped because the watch was too slow."""
    messages: int
    """Messages since the watch began."""
    messages_per_s: float
    """Messages per second."""
    bytes_per_s: float
    """Bytes per second of all datagrams."""
    connections: tuple[ConnectionReport, ...]
    """Connections that are present."""
    topics: tuple[TopicReport, ...]
    """Destinations with messages or subscribers, the busiest first."""
    senders: tuple[SenderReport, ...]
    """Senders, the busiest first."""
    receivers: tuple[ReceiverReport, ...]
    """Receivers, the slowest first."""
    gateways: tuple[GatewayReport, ...]
    """Gateways that connect this network to others."""
    slowest: ReceiverReport | None
    """Receiver that delays the bus most, or that senders have given up on for being too slow."""

    def as_dict(self) -> dict[str, Any]:
        """Return a dict that `json.dumps` accepts."""
        return asdict(self)


def hash_label(number: int) -> str:
    """Return the label of a destination whose name is unknown."""
    return f"#{number:08x}"
