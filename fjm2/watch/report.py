"""What a watch has to tell at a moment: plain values, ready for a screen or for JSON."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport:
    """A connection, as it announces itself."""

    connection_id: str
    """16 hexadecimal digits."""
    client_id: str | None
    node_id: int
    """Who receives for it."""
    address: str | None
    """From where that node is heard, with the port."""
    seen_s: float
    """For how long it has been known here."""
    subscriptions: tuple[str, ...]
    """Topics by name, or by hash (`#` and eight digits) while no name is known."""
    subscribes_to_more: bool
    """Than is listed."""
    publishes: tuple[str, ...]
    gateway: str | None
    """The host of the gateway that brings it here."""

    @property
    def label(self) -> str:
        """What people know it by."""
        return self.client_id or self.connection_id


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """A destination."""

    name: str | None
    """None while nobody has published to it, and nobody said its name."""
    hash: int
    messages: int
    """Since the watch began; so are all numbers that are not `per_s`."""
    messages_per_s: float
    bytes_per_s: float
    """Of whole frames."""
    publishers: tuple[str, ...]
    """Client ids, or connection ids of those that have none."""
    subscribers: tuple[str, ...]

    @property
    def label(self) -> str:
        return self.name or hash_label(self.hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderReport:
    """A NORM sender: one lane of a bus member, or a foreigner."""

    node_id: int
    owner: str | None
    """Its connections, also if they have left; None if none has announced it."""
    lane: int | None
    address: str | None
    messages: int
    messages_per_s: float
    bytes: int
    """Of NORM, in datagrams; so are the other bytes of a sender."""
    bytes_per_s: float
    datagrams: int
    repairs: int
    """Segments sent again."""
    repairs_per_s: float
    parity: int
    nacks: int
    """Asked of it."""
    nacks_per_s: float
    datagrams_missed: int
    """That it sent, as their numbers tell, and that were not heard here."""
    grtt_s: float | None

    @property
    def label(self) -> str:
        return self.owner or f"{self.node_id:08x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverReport:
    """A node that answers senders."""

    node_id: int
    owner: str | None
    address: str | None
    nacks: int
    nacks_per_s: float
    requests: int
    """Repairs asked for; one may be of a range of segments."""
    acks: int
    confirm_s: float | None
    """The longest that it took for a confirmation of late."""
    awaited_s: float | None
    """For how long a sender has been waiting for one."""

    @property
    def label(self) -> str:
        return self.owner or f"{self.node_id:08x}"

    @property
    def delay_s(self) -> float:
        """By what it slows who waits for it."""
        return max(self.confirm_s or 0.0, self.awaited_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """A gateway of this network."""

    host: str
    gateway_id: int | None
    is_forwarding: bool | None
    nodes: int
    """Members elsewhere that are heard through it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BusReport:
    """All of a bus."""

    seconds: float
    """Since the watch began."""
    interval_s: float
    """Over which rates were taken."""
    datagrams: int
    not_norm: int
    """Datagrams that make no sense."""
    overruns: int
    """Datagrams that this onlooker was too slow for."""
    messages: int
    messages_per_s: float
    bytes_per_s: float
    connections: tuple[ConnectionReport, ...]
    topics: tuple[TopicReport, ...]
    senders: tuple[SenderReport, ...]
    receivers: tuple[ReceiverReport, ...]
    gateways: tuple[GatewayReport, ...]
    slowest: ReceiverReport | None

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def hash_label(number: int) -> str:
    """A destination of which nothing else is known."""
    return f"#{number:08x}"
