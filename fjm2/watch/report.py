"""What a watch has to tell at a moment: plain values, ready for a screen or for JSON."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionReport:
    """A connection, as it announces itself."""

    connection_id: str
    """16 hexadecimal digits."""
    client_id: str | None
    """What it calls itself."""
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
    """Topics it published to of late."""
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
    """By which connections name what they subscribe to."""
    messages: int
    """Since the watch began; so are all numbers that are not `per_s`."""
    messages_per_s: float
    """Whole messages."""
    bytes_per_s: float
    """Of whole frames."""
    publishers: tuple[str, ...]
    """Client ids, or connection ids of those that have none."""
    subscribers: tuple[str, ...]
    """Likewise."""

    @property
    def label(self) -> str:
        """The name, or the hash while none is known."""
        return self.name or hash_label(self.hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderReport:
    """A NORM sender: one lane of a bus member, or a foreigner."""

    node_id: int
    """In the group."""
    owner: str | None
    """Its connections, also if they have left; None if none has announced it."""
    lane: int | None
    """0 to 2, by priority; None of a foreigner."""
    address: str | None
    """From where it is heard."""
    messages: int
    """Whole messages."""
    messages_per_s: float
    """Whole messages."""
    bytes: int
    """Of NORM, in datagrams; so are the other bytes of a sender."""
    bytes_per_s: float
    """Of NORM."""
    datagrams: int
    """Of all kinds."""
    repairs: int
    """Segments sent again."""
    repairs_per_s: float
    """Segments sent again."""
    parity: int
    """Segments of parity."""
    nacks: int
    """Asked of it."""
    nacks_per_s: float
    """Asked of it."""
    datagrams_missed: int
    """That it sent, as their numbers tell, and that were not heard here."""
    grtt_s: float | None
    """The round-trip time that it assumes for the group."""

    @property
    def label(self) -> str:
        """Whose it is, or its node id in hexadecimal."""
        return self.owner or f"{self.node_id:08x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverReport:
    """A node that answers senders."""

    node_id: int
    """In the group."""
    owner: str | None
    """Its connections; None if none has announced it."""
    address: str | None
    """From where it is heard."""
    nacks: int
    """Sent by it."""
    nacks_per_s: float
    """Sent by it."""
    requests: int
    """Repairs asked for; one may be of a range of segments."""
    acks: int
    """Confirmations."""
    confirm_s: float | None
    """The longest that it took for a confirmation of late."""
    awaited_s: float | None
    """For how long a sender has been waiting for one."""
    given_up_by: tuple[str, ...] = ()
    """Senders that wait for it no more: they have asked it in vain, and go on without it."""

    @property
    def label(self) -> str:
        """Whose it is, or its node id in hexadecimal."""
        return self.owner or f"{self.node_id:08x}"

    @property
    def delay_s(self) -> float:
        """By what it slows who waits for it."""
        return max(self.confirm_s or 0.0, self.awaited_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayReport:
    """A gateway of this network."""

    host: str
    """Its address."""
    gateway_id: int | None
    """From its beacon; None if none was heard."""
    is_forwarding: bool | None
    """Whether it forwards for this network; None if no beacon was heard."""
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
    """All that were heard."""
    not_norm: int
    """Datagrams that make no sense."""
    overruns: int
    """Datagrams that this onlooker was too slow for."""
    messages: int
    """Whole messages."""
    messages_per_s: float
    """Whole messages."""
    bytes_per_s: float
    """Of all datagrams."""
    connections: tuple[ConnectionReport, ...]
    """Who is there."""
    topics: tuple[TopicReport, ...]
    """What is published and subscribed to."""
    senders: tuple[SenderReport, ...]
    """Who sends."""
    receivers: tuple[ReceiverReport, ...]
    """Who answers; the slowest first."""
    gateways: tuple[GatewayReport, ...]
    """Who joins this network to others."""
    slowest: ReceiverReport | None
    """The receiver that slows the bus most, or has been given up as it was too slow."""

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self)


def hash_label(number: int) -> str:
    """A destination of which nothing else is known."""
    return f"#{number:08x}"
