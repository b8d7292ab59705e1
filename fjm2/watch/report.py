"""Reports of a watch: plain values, ready for a screen or for JSON."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport:
    """A connection, as its announcements describe it."""

    connection_id: str
    """Id of the connection, as 16 hexadecimal digits."""
    client_id: str | None
    """Client id of the connection; None if it has none."""
    node_id: int
    """Id of the node that receives for the connection."""
    address: str | None
    """Address and port that the receiving node is heard from."""
    seen_s: float
    """Seconds since the connection's first announcement was heard."""
    subscriptions: tuple[str, ...]
    """Topics subscribed to, by name, or by hash (`#` and eight digits) while the name is unknown."""
    subscribes_to_more: bool
    """True if the connection subscribes to more topics than its announcements list."""
    is_keeper: bool
    """True for a keeper. It hears everything, and subscribes to nothing."""
    publishes: tuple[str, ...]
    """Topics that the connection published to recently."""
    gateway: str | None
    """Host of the gateway that the connection is heard through; None if there is none."""

    @property
    def label(self) -> str:
        """Client id of the connection, or its connection id if it has none."""
        return self.client_id or self.connection_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A topic or queue, with its traffic."""

    name: str | None
    """Name of the topic. None until something is published to it, unless the watch was told the name."""
    hash: int
    """Hash by which announcements name the destination."""
    messages: int
    """Number of messages since the watch began. All other totals are also since then."""
    messages_per_s: float
    """Messages per second."""
    bytes_per_s: float
    """Bytes per second of whole frames."""
    publishers: tuple[str, ...]
    """Client ids of connections, or connection ids of those without a client id."""
    subscribers: tuple[str, ...]
    """Client ids of connections, or connection ids of those without a client id."""
    possible_subscribers: tuple[str, ...]
    """Labels of connections that subscribe to more topics than they list, as those with patterns do, and may get the
    messages of this one."""

    @property
    def label(self) -> str:
        """Name of the topic, or its hash while the name is unknown."""
        return self.name or hash_label(self.hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderReport:
    """A NORM sender: one lane of a bus member, or a foreign program."""

    node_id: int
    """Node id in the group."""
    owner: str | None
    """Labels of the sender's connections, even if they have left; None if no connection announced the sender."""
    lane: int | None
    """Number of the lane, 0 to 2, by priority; None if the sender is foreign."""
    address: str | None
    """Address and port that the node is heard from."""
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
    """Number of repair requests sent to the sender."""
    nacks_per_s: float
    """Repair requests per second."""
    datagrams_missed: int
    """Number of datagrams that the sender sent, by their sequence numbers, but that were not heard here."""
    grtt_s: float | None
    """Round-trip time that the sender assumes for the group, in seconds."""

    @property
    def label(self) -> str:
        """Owner of the node, or its node id in hexadecimal if no owner is known."""
        return self.owner or f"{self.node_id:08x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverReport:
    """A node that answers senders."""

    node_id: int
    """Node id in the group."""
    owner: str | None
    """Labels of the receiver's connections; None if no connection announced the receiver."""
    address: str | None
    """Address and port that the node is heard from."""
    nacks: int
    """Number of repair requests (NACKs) that the receiver sent."""
    nacks_per_s: float
    """Repair requests per second."""
    requests: int
    """Number of repairs requested. One request may cover a range of segments."""
    acks: int
    """Number of confirmations that the receiver sent."""
    confirm_s: float | None
    """Longest time that a recent confirmation took, in seconds; None if there was none."""
    awaited_s: float | None
    """Longest time that a sender has been waiting for the receiver's confirmation, in seconds; None if no sender
    waits."""
    given_up_by: tuple[str, ...] = ()
    """Senders that asked the receiver in vain, gave up, and continue without it."""
    is_full: bool = False
    """True if the receiver says that its application takes nothing at the moment, so that senders wait for it."""

    @property
    def label(self) -> str:
        """Owner of the node, or its node id in hexadecimal if no owner is known."""
        return self.owner or f"{self.node_id:08x}"

    @property
    def delay_s(self) -> float:
        """Time by which the receiver delays senders that wait for it, in seconds."""
        return max(self.confirm_s or 0.0, self.awaited_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """A gateway of this network."""

    host: str
    """Address of the gateway."""
    gateway_id: int | None
    """Id in the gateway's beacon; None if no beacon was heard."""
    is_forwarding: bool | None
    """True if the gateway forwards for this network, False if it stands by; None if no beacon was heard."""
    nodes: int
    """Number of remote members that are heard through the gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperReport:
    """A keeper, as it tells its status every few seconds."""

    keeper_id: str
    """Id of the keeper, as 32 hexadecimal digits."""
    host: str
    """Name of the host that it runs on."""
    cell_id: str
    """Id of its cell, as 16 hexadecimal digits; zeros if it has none yet."""
    state: str
    """State of the keeper: `serving` for the manager."""
    epoch: int
    """Epoch of the cell: the number of its manager's term."""
    lag: int
    """Messages that another keeper of the cell has on disk, and this one has not."""
    store_bytes: int
    """Bytes that the store takes on disk."""
    allowed_bytes: int
    """Bytes that the store may take."""
    free_bytes: int
    """Room on the disk."""
    sync_s: float
    """Time that recent syncs of the disk took on average, in seconds."""
    is_full: bool
    """True if the store takes no messages."""


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
    keepers: tuple[KeeperReport, ...]
    """Keepers, the manager first."""
    slowest: ReceiverReport | None
    """Receiver that delays the bus most, or that senders have given up on for being too slow."""

    def as_dict(self) -> dict[str, Any]:
        """Return a dict that `json.dumps` accepts."""
        return asdict(self)


def hash_label(number: int) -> str:
    """Return the label of a destination whose name is unknown, made from its hash."""
    return f"#{number:08x}"
